//! What quotas promise.
