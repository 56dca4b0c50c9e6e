-- data_fair_release: fair_release, for a holder that has data. With the last hold count the data gets its
-- end, or goes with an attempt that is undone.
-- KEYS[1] data   hash, what the last holder with data has written; the keys of fair_release follow
-- ARGV[1] 1: the hold was granted; 0: an attempt, which may have been
-- ARGV[2] holder: the first argument of fair_release; its others follow
-- Returns what fair_release returns
-- Repeat-safe: yes, as fair_release. A repeat finds no hold, and changes no data.
local data, granted, holder = KEYS[1], ARGV[1], ARGV[2]
-- lib/data_released, behind this, runs fair_release.
