-- lib/force: the beginning of the scripts that free a lock by force; put in front of them, behind
-- lib/holder. It refuses a fenced value and the hash of an application: nothing could bring it back.
-- KEYS[1] lock    hash, holder -> hold count

if redis.call('hlen', KEYS[1]) == 0 then
  return 0
end
if not is_lock(KEYS[1]) then
  return redis.error_reply('WRONGTYPE something other than a lock of this kind has this name')
end

