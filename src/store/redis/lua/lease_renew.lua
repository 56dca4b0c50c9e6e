-- lease_renew: extends many holds, each only if its holder is still there.
-- KEYS[i] lock    hash, holder -> hold count
-- ARGV[i] holder of KEYS[i]
-- ARGV[#KEYS + i] lease of KEYS[i] in ms; 0 only checks whether the holder is still there
-- Returns one value for each lock: 1 held, 0 lost, or an error
-- Repeat-safe: yes. A TTL is only ever raised, and only for a holder that is there.
local n = #KEYS
-- lib/renew_hashes, behind this, reads KEYS[i], ARGV[i] and ARGV[#KEYS + i].
