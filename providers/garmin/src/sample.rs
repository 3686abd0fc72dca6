//! Requests as Garmin would send them.

use hookfast_webhook::{NoSample, Request, SampleOrder};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};

use crate::CLIENT_ID;

pub(crate) const KINDS: [&str; 8] =
    ["sleeps", "dailies", "activities", "activityDetails", "ping", "batch", "deregistrations", "userPermissionsChange"];

const HOUR: i64 = 3600;

pub(crate) fn request(order: &SampleOrder<'_>, client_id: Option<&str>) -> Result<Request, NoSample> {
    let body = body(order.kind_of(&KINDS)?, order.now.unix_timestamp(), order.serial);
    let url = match order.key {
        Some(token) => format!("{}/{}", order.url, token.expose()),
        None => order.url.into(),
    };
    let mut headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/json;charset=UTF-8")),
        (USER_AGENT, HeaderValue::from_static("Garmin Health API")),
    ]);
    if let Some(client_id) = client_id {
        let value = HeaderValue::try_from(client_id)
            .map_err(|_| NoSample("`client_id` has characters that a header cannot have".into()))?;
        headers.insert(CLIENT_ID.clone(), value);
    }
    Ok(Request { method: Method::POST, url, headers, body: body.into() })
}

fn body(kind: &str, now: i64, serial: u64) -> String {
    let (user, other_user) = (format!("4aac{serial:028x}"), format!("4bbd{serial:028x}"));
    match kind {
        "dailies" => format!(r#"{{"dailies":[{}]}}"#, daily(&user, now, serial)),
        "activities" => format!(r#"{{"activities":[{}]}}"#, activity(&user, now, serial)),
        "activityDetails" => format!(r#"{{"activityDetails":[{}]}}"#, activity_details(&user, now, serial)),
        "ping" => format!(r#"{{"epochs":[{}]}}"#, ping(&user, now, serial)),
        "batch" => format!(
            r#"{{"dailies":[{},{}],"sleeps":[{}],"activities":[{}]}}"#,
            daily(&user, now, serial),
            daily(&other_user, now, serial),
            sleep(&user, now, serial),
            activity(&other_user, now, serial)
        ),
        "deregistrations" => format!(r#"{{"deregistrations":[{{"userId":"{user}"}}]}}"#),
        "userPermissionsChange" => format!(
            r#"{{"userPermissionsChange":[{{"userId":"{user}","summaryId":"x1-perm-{serial:x}","permissions":["ACTIVITY_EXPORT","HEALTH_EXPORT"],"changeTimeInSeconds":{now}}}]}}"#
        ),
        _ => format!(r#"{{"sleeps":[{}]}}"#, sleep(&user, now, serial)),
    }
}

fn sleep(user: &str, now: i64, serial: u64) -> String {
    let start = now - 9 * HOUR;
    let end_of_deep = start + 5400;
    format!(
        r#"{{"userId":"{user}","summaryId":"x1-sleep-{serial:x}","startTimeInSeconds":{start},"startTimeOffsetInSeconds":10800,"durationInSeconds":26400,"unmeasurableSleepInSeconds":0,"deepSleepDurationInSeconds":5400,"lightSleepDurationInSeconds":14400,"remSleepInSeconds":6600,"awakeDurationInSeconds":900,"sleepLevelsMap":{{"deep":[{{"startTimeInSeconds":{start},"endTimeInSeconds":{end_of_deep}}}]}},"validation":"ENHANCED_FINAL","overallSleepScore":{{"value":82,"qualifierKey":"GOOD"}},"naps":[]}}"#
    )
}

fn daily(user: &str, now: i64, serial: u64) -> String {
    let start = now - 24 * HOUR;
    format!(
        r#"{{"userId":"{user}","summaryId":"x1-daily-{serial:x}","activityType":"GENERIC","startTimeInSeconds":{start},"startTimeOffsetInSeconds":10800,"durationInSeconds":86400,"steps":8210,"distanceInMeters":6146.5,"activeKilocalories":321,"restingHeartRateInBeatsPerMinute":54,"timeOffsetHeartRateSamples":{{"15":75,"30":76}},"averageStressLevel":-1}}"#
    )
}

fn activity(user: &str, now: i64, serial: u64) -> String {
    format!(r#"{{"userId":"{user}","summaryId":"{serial}",{}}}"#, activity_fields(now, serial))
}

fn activity_fields(now: i64, serial: u64) -> String {
    let start = now - HOUR;
    format!(
        r#""activityId":{serial},"activityType":"RUNNING","activityName":"Riyadh Running","startTimeInSeconds":{start},"startTimeOffsetInSeconds":10800,"durationInSeconds":3300,"averageHeartRateInBeatsPerMinute":151,"distanceInMeters":10012.3,"deviceName":"Garmin fenix 8""#
    )
}

fn activity_details(user: &str, now: i64, serial: u64) -> String {
    let (fields, start, next) = (activity_fields(now, serial), now - HOUR, now - HOUR + 1);
    format!(
        r#"{{"userId":"{user}","summaryId":"{serial}-detail","activityId":{serial},"summary":{{{fields}}},"samples":[{{"startTimeInSeconds":{start},"latitudeInDegree":24.71,"longitudeInDegree":46.67,"heartRate":120}},{{"startTimeInSeconds":{next},"latitudeInDegree":24.72,"longitudeInDegree":46.67,"heartRate":121}}],"laps":[{{"startTimeInSeconds":{start}}}]}}"#
    )
}

fn ping(user: &str, now: i64, serial: u64) -> String {
    let from = now - 300;
    format!(
        r#"{{"userId":"{user}","callbackURL":"https://apis.garmin.com/wellness-api/rest/epochs?uploadStartTimeInSeconds={from}&uploadEndTimeInSeconds={now}&token=SAMPLE{serial}"}}"#
    )
}
