"""A warehouse to play with: it heeds the idempotency key, and refuses what costs more than its one argument."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

limit = float(sys.argv[1]) if len(sys.argv) > 1 else 1000
receipts = {}


class Warehouse(BaseHTTPRequestHandler):
    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = judge(order, self.headers["Idempotency-Key"])
        print(order, "->", status, answer)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())


def judge(order, key):
    if float(order["total"] or 0) > limit:
        return 422, "too precious for us"
    return 200, json.dumps({"receipt": receipts.setdefault(key, f"W-{len(receipts) + 1}")})


HTTPServer(("127.0.0.1", 9090), Warehouse).serve_forever()
