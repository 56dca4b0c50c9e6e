-- lib/job: whether an occurrence of a job may begin; put in front of the scripts that ask this.

-- By the order of bytes: the operator of Lua follows the server's locale.
local function is_newer(label, other)
  for i = 1, math.min(#label, #other) do
    local a, b = string.byte(label, i), string.byte(other, i)
    if a ~= b then
      return a > b
    end
  end
  return #label > #other
end

local function millis()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function done_at(record)
  local at = redis.call('hget', record, 'at')
  return at and {2, tonumber(at), redis.call('hget', record, 'by') or '', ''}
end

-- That it was done, or a newer one, and this one was not forgotten since; nil: neither.
local function is_over(record, last, occurrence)
  local newest = redis.call('hget', last, 'newest')
  if newest and not is_newer(occurrence, newest) and not redis.call('hget', record, 'again') then
    return {4, 0, newest, ''}
  end
end

-- That it was tried too often, or must not be tried yet; nil: neither.
local function is_held_up(record, most)
  local attempts = tonumber(redis.call('hget', record, 'attempts') or '0')
  if attempts >= tonumber(most) then
    return {6, attempts, '', ''}
  end
  local left = tonumber(redis.call('hget', record, 'not_before') or '0') - millis()
  if left > 0 then
    return {5, left, '', ''}
  end
end

