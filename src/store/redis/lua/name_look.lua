-- name_look: returns everything under a name, whatever its kind.
-- KEYS[1] lock       hash of a lock, integer of a latch or a semaphore, or anything else
-- KEYS[2] token      integer, the last fencing token; that of a holder with data is in its data
-- KEYS[3] queue      list of waiting holders, first come first
-- KEYS[4] deadlines  sorted set, waiter -> epoch ms
-- KEYS[5] marker     string, a writer waits for the readers to leave
-- KEYS[6] leases     sorted set, permit of 16 bytes -> epoch ms at which its lease ends
-- KEYS[7] opened     integer, there for a while after a latch was opened
-- KEYS[8] data       hash, what the last holder with data has written
-- ARGV[1] hash tag of the lock, the prefix of its timeout keys
-- ARGV[2] how many holders, waiters and permits are listed
-- Further arguments: the channels on which waiters of each kind listen
-- Returns {what, number, {field, value, ms left, ...}, token, queue length, {waiter, ms left, ...},
--   ms left of the marker, not listed, permits ended, {permit, ms left, ...}, 1 if opened,
--   {clients that listen on each channel}, empty for a user who may not ask, data of the holder of a
--   plain lock or nil}
-- what: 0 nothing, 1 a plain lock, 2 a read-write lock, 3 a number or other text, 4 something else.
-- not listed: holders, or permits whose lease has not ended, beyond those that are listed.
-- ms left: -1 without an end, -2 if there is none. Number and token are nil where there is none.
-- Repeat-safe: yes, it only reads.
local most = tonumber(ARGV[2])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- nil for a key of another type. Other errors, such as a missing permission, end the script.
local function read(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    if string.find(answer.err, 'WRONGTYPE', 1, true) then
      return nil
    end
    return redis.call(...)
  end
  return answer
end

local function left_of(score)
  local ends = tonumber(score)
  if not ends then
    return -2
  end
  -- Redisson's score for a permit without a lease.
  return ends >= 922337203685477 and -1 or math.max(math.floor(ends - now), 0)
end

-- The first bytes of a string, which may be large. GETRANGE is not in the ACL rule; Redis 6.2
-- cannot report whether it is permitted.
local function start_of(key)
  local known, may = pcall(redis.acl_check_cmd, 'getrange', key, 0, 31)
  if known and may then
    return read('exists', key) == 1 and read('getrange', key, 0, 31)
  end
  local text = read('get', key)
  return text and string.sub(text, 1, 32)
end

-- When the last lease of a reader ends. Each level of its hold has one; if there are many, only the
-- levels that were taken last are read.
local function reader_left(id, count, most_levels)
  local left = -2
  for level = count, math.max(count - most_levels + 1, 1), -1 do
    local name = ARGV[1] .. ':' .. id .. ':rwlock_timeout:' .. string.format('%.0f', level)
    left = math.max(left, redis.call('pttl', name))
  end
  return left
end

local function holders_of(what, fields)
  local holders, pttl = {}, redis.call('pttl', KEYS[1])
  local levels = math.max(math.floor(10000 / math.min(fields, most)), 1)
  local all = redis.call('hgetall', KEYS[1])
  local listed = 0
  for n = 1, #all, 2 do
    local field, value, left = all[n], all[n + 1], pttl
    local is_mode = what == 2 and field == 'mode'
    if is_mode or listed < most then
      if what == 2 and not is_mode and string.sub(field, -6) ~= ':write' then
        left = reader_left(field, math.min(tonumber(value) or 0, 2147483647), math.min(levels, 100))
      end
      holders[#holders + 1] = field
      holders[#holders + 1] = value
      holders[#holders + 1] = left
      listed = listed + (is_mode and 0 or 1)
    end
  end
  return holders, #all / 2 - #holders / 3
end

local what, number, holders, unlisted = 0, false, {}, 0
local fields = read('hlen', KEYS[1])
local text = not fields and start_of(KEYS[1])
if fields == 0 then
  what = 0
elseif fields then
  local mode = redis.call('hget', KEYS[1], 'mode')
  if fields == 1 and not mode then
    what = 1
  elseif (mode == 'read' or mode == 'write') and fields <= 100000 then
    what = 2
  else
    -- A hash of an application, which may be so large that reading it would hold up the server.
    what = 4
  end
  if what ~= 4 then
    holders, unlisted = holders_of(what, fields)
  end
elseif text then
  what, number = 3, text
else
  what = 4
end

-- LLEN is not in the ACL rule: the length of a long queue is found by reading places.
local function length_of(listed)
  if listed < most then
    return listed
  end
  local there, beyond = listed, listed * 2
  while redis.call('lindex', KEYS[3], beyond - 1) do
    there, beyond = beyond, beyond * 2
  end
  while beyond - there > 1 do
    local middle = math.floor((there + beyond) / 2)
    if redis.call('lindex', KEYS[3], middle - 1) then
      there = middle
    else
      beyond = middle
    end
  end
  return there
end

local waiters = {}
local queue = read('lrange', KEYS[3], 0, most - 1) or {}
for n = 1, #queue do
  waiters[2 * n - 1] = queue[n]
  waiters[2 * n] = left_of(read('zscore', KEYS[4], queue[n]))
end

-- The permits whose leases end last: they show when all have ended.
local permits, ended = {}, 0
local leases = read('zrange', KEYS[6], -most, -1, 'withscores') or {}
if #leases > 0 then
  ended = redis.call('zcount', KEYS[6], '-inf', string.format('(%.0f', now + 1))
end
local live = 0
for n = 1, #leases, 2 do
  permits[n] = leases[n]
  permits[n + 1] = left_of(leases[n + 1])
  live = live + (permits[n + 1] ~= 0 and 1 or 0)
end
if what == 3 and #leases > 0 then
  unlisted = redis.call('zcard', KEYS[6]) - ended - live
end

local data
if what == 1 then
  data = read('hget', KEYS[8], 'holder') == holders[1] and redis.call('hget', KEYS[8], 'data')
end

local listeners = {}
local counted = redis.pcall('pubsub', 'numsub', unpack(ARGV, 3))
if type(counted) == 'table' and not counted.err then
  for n = 2, #counted, 2 do
    listeners[n / 2] = counted[n]
  end
end

local token = data and tonumber(redis.call('hget', KEYS[8], 'token')) or 0
token = token > 0 and string.format('%.0f', token) or start_of(KEYS[2]) or false
return {what, number, holders, token, length_of(#queue), waiters,
  redis.call('pttl', KEYS[5]), unlisted, ended, permits, redis.call('exists', KEYS[7]), listeners,
  data or false}
