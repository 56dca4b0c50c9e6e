//! placeholder
use crate::failure::Failure;
use crate::store::StoreArgs;
/// W
#[derive(Debug, clap::Args)]
pub(crate) struct WatchArgs { name: String }
pub(crate) fn watch(_: &StoreArgs, _: &WatchArgs) -> Result<u8, Failure> { Ok(0) }
