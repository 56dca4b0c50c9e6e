-- lib/inner: begins a function with the script behind this, up to lib/outer; put in front of a
-- script that another one runs as a part of itself.
local function inner(KEYS, ARGV)
