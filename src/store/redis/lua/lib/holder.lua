-- lib/holder: tells a lock from a hash of an application; put in front of the scripts that write to
-- a hash without being in it, or delete one.

-- Whether a field and its value are a holder (a UUID, a colon and more) and a hold count. The count
-- is small, because there are loops over those of other clients, and the server waits for them.
local function is_hold(field, count)
  return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:.') and string.find(count, '^[1-9]%d?%d?%d?$')
end

-- The hold count that a field has, for loops over the levels of a reader.
local function levels_in(count)
  return math.min(tonumber(count) or 0, 9999)
end

-- Whether a hash has nothing but holds; that of a read-write lock has its mode as well.
local function is_lock(lock, has_mode)
  -- Reading a hash that is larger than any lock would hold up the server.
  if redis.call('hlen', lock) > 100000 then
    return false
  end
  local fields = redis.call('hgetall', lock)
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    local is_mode = has_mode and field == 'mode' and (value == 'read' or value == 'write')
    if not is_mode and not is_hold(field, value) then
      return false
    end
  end
  return true
end

