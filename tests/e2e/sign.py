"""Signs one event with a provider's own package, and prints the request as JSON: sign.py PACKAGE SECRET URL"""

import datetime
import hashlib
import json
import sys
import time


def stripe(secret, url):
    import stripe

    body = json.dumps({"id": "evt_sdk", "object": "event", "type": "invoice.paid", "data": {"amount": 2599}})
    now = int(time.time())
    signature = stripe.WebhookSignature._compute_signature(f"{now}.{body}", secret)
    return url, {"stripe-signature": f"t={now},v1={signature}"}, body


def twilio(secret, url):
    from urllib.parse import urlencode

    from twilio.request_validator import RequestValidator

    parameters = {"MessageSid": "SM2599", "AccountSid": "AC1", "Body": "a + b & c", "FromCity": "", "SmsStatus": "received"}
    signature = RequestValidator(secret).compute_signature(url, parameters)
    headers = {"x-twilio-signature": signature, "content-type": "application/x-www-form-urlencoded"}
    return url, headers, urlencode(parameters)


def twilio_json(secret, url):
    from twilio.request_validator import RequestValidator

    event = {"specversion": "1.0", "type": "com.twilio.messaging.message.sent", "id": "EZ2599", "data": {}}
    body = json.dumps([event])
    url = f"{url}?bodySHA256={hashlib.sha256(body.encode()).hexdigest()}"
    signature = RequestValidator(secret).compute_signature(url, {})
    return url, {"x-twilio-signature": signature, "content-type": "application/json"}, body


def standardwebhooks(secret, url):
    from standardwebhooks.webhooks import Webhook

    body = json.dumps({"type": "invoice.paid", "data": {"amount": 2599}})
    now = datetime.datetime.now(tz=datetime.timezone.utc)
    signature = Webhook(secret).sign("msg_sdk", now, body)
    headers = {"webhook-id": "msg_sdk", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}
    return url, headers, body


def slack(secret, url):
    from slack_sdk.signature import SignatureVerifier

    event = {"type": "app_mention", "text": "2599"}
    body = json.dumps({"type": "event_callback", "event_id": "EvSdk", "team_id": "T1", "event": event})
    now = str(int(time.time()))
    signature = SignatureVerifier(secret).generate_signature(timestamp=now, body=body)
    return url, {"x-slack-request-timestamp": now, "x-slack-signature": signature}, body


if __name__ == "__main__":
    package, secret, url = sys.argv[1:]
    url, headers, body = globals()[package.replace("-", "_")](secret, url)
    print(json.dumps({"url": url, "headers": headers, "body": body}))
