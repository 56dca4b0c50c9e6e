//! The crate's Lua scripts as they are sent, assembled by the crate's own table.

#[macro_use]
#[path = "../../src/store/redis/lua/manifest.rs"]
mod manifest;

macro_rules! table {
    ($($id:ident = $name:literal $(with $front:literal)* $(then $end:literal)* => $shape:expr;)*) => {
        &[$(($name, lua_source!($name $(with $front)* $(then $end)*))),*]
    };
}

const ALL: &[(&str, &str)] = for_each_script!(table);

pub(crate) fn script(name: &str) -> &'static str {
    ALL.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no script {name}")).1
}
