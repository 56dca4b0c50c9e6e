-- lib/opened: records when a latch was opened; put in front of the scripts that open one.
-- For waiters that check only after the latch was set again: they compare it with what they saw at
-- first. So it grows, also if the server's clock was set back meanwhile.
local function note_opening(key, ttl)
  local time = redis.call('time')
  local last = tonumber(redis.pcall('get', key)) or 0
  local opened = math.max(time[1] * 1000000 + time[2], last + 1)
  redis.call('set', key, string.format('%.0f', opened), 'px', ttl)
end

