//! The crate's Lua scripts as they are sent, assembled by the crate's own table.

use std::collections::BTreeMap;

#[macro_use]
#[path = "../../../src/store/redis/lua/manifest.rs"]
mod manifest;

macro_rules! by_name {
    ($($id:ident = $name:literal $(with $front:literal)* $(then $end:literal)* => $shape:expr;)*) => {
        BTreeMap::from([$(($name, lua_source!($name $(with $front)* $(then $end)*))),*])
    };
}

/// Each script by the name of its file.
pub(crate) fn scripts() -> BTreeMap<&'static str, &'static str> {
    for_each_script!(by_name)
}

pub(crate) fn script(name: &str) -> &'static str {
    scripts()[name]
}

/// The hash by which a request names a script that the server knows.
pub(crate) fn sha(source: &str) -> String {
    redis::Script::new(source).get_hash().to_owned()
}
