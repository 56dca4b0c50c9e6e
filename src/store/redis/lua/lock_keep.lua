-- lock_keep: gives up the last hold count of a plain lock, or of the writer of a read-write lock,
-- and leaves the lock taken for a time. Waiters are notified: the end that they know of is out of
-- date.
-- KEYS[1] lock    hash, holder -> hold count; of a read-write lock also mode -> write
-- ARGV[1] field of the holder
-- ARGV[2] field of the lock while it is kept
-- ARGV[3] for how long in ms
-- ARGV[4] channel for the messages
-- ARGV[5] the message, as of a release
-- ARGV[6] a second message, if the first one reached anybody; empty: none
-- Returns {0, 0} not held
--         {1, receivers} kept, and how many subscribers the message reached
-- Repeat-safe: yes. A repeat finds the other field, only ever shortens the TTL, and notifies nobody
-- unless it does.
local kept = keep(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if kept < 2 then
  return {kept, 0}
end
local receivers = redis.call('publish', ARGV[4], ARGV[5])
if receivers > 0 and ARGV[6] ~= '' then
  redis.call('publish', ARGV[4], ARGV[6])
end
return {1, receivers}
