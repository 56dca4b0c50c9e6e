-- lib/number: reads a number that Redisson writes as well; put in front of the scripts that do.
-- Returns the number under a key, nil if there is none.
local function number_at(key)
  local text = redis.call('get', key)
  -- Lua accepts more as a number than Redis does, for instance '1e3'. INCRBY reports the error in
  -- the words of Redis.
  if text and text ~= '0' and (#text > 15 or not string.find(text, '^-?[1-9]%d*$')) then
    return redis.call('incrby', key, 0)
  end
  return text and tonumber(text)
end

