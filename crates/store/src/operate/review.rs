//! What operators decide about jobs, and how that stands beside why and when a job died.

use hookfast_webhook::enum_of_words;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::decode::optional_word;

/// What an operator decided about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resolution {
    /// It runs again.
    Retried,
    /// It need not be done.
    Ignored,
    /// It was done by hand.
    ManualFix,
    /// Another handler got a job in its place.
    Moved,
}

/// That an operator has looked at a job, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// What was decided.
    pub resolution: Resolution,
    /// When.
    pub at: OffsetDateTime,
    /// Who decided it. Earlier versions did not note that with the job, nor what follows.
    pub by: Option<String>,
    /// Why.
    pub note: Option<String>,
    /// The row of the audit.
    pub audit: Option<Uuid>,
}

/// The columns of a job that tell why it died and what became of it.
pub(crate) struct Ended {
    pub(crate) reason: Option<String>,
    pub(crate) finished_at: Option<OffsetDateTime>,
    pub(crate) resolution: Option<String>,
    pub(crate) reviewed_at: Option<OffsetDateTime>,
    pub(crate) reviewed_by: Option<String>,
    pub(crate) note: Option<String>,
    pub(crate) audit_id: Option<Uuid>,
}

impl Ended {
    /// Why the job died, and the review. Earlier versions wrote the resolution over the reason, and its time over that of the
    /// death; gateways of such a version may still do that beside this one.
    pub(crate) fn reason_and_review(self) -> Result<(Option<String>, Option<Review>), sqlx::Error> {
        let earlier = self.reason.as_deref().and_then(|reason| reason.parse::<Resolution>().ok());
        let reason = self.reason.filter(|_| earlier.is_none());
        let resolution = optional_word(self.resolution.as_deref())?.or(earlier);
        let review = resolution.zip(self.reviewed_at.or(self.finished_at)).map(|(resolution, at)| Review {
            resolution,
            at,
            by: self.reviewed_by,
            note: self.note,
            audit: self.audit_id,
        });
        Ok((reason, review))
    }
}

impl Resolution {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Retried, Self::Ignored, Self::ManualFix, Self::Moved];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retried => "retried",
            Self::Ignored => "ignored",
            Self::ManualFix => "manual_fix",
            Self::Moved => "moved",
        }
    }
}

enum_of_words!(Resolution, "a way to resolve a job");
