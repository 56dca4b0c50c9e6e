//! What is asked of the sentinels, and settings that do not fit together.
