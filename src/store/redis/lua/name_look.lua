-- name_look: returns all that stands under a name, of whatever kind it is.
-- KEYS[1] lock       hash of a lock, integer of a latch or a semaphore, or anything else
-- KEYS[2] token      integer, the last fencing token
-- KEYS[3] queue      list of waiting holders, first come first
-- KEYS[4] deadlines  sorted set, waiter -> epoch ms
-- KEYS[5] marker     string, a writer waits for the readers to leave
-- KEYS[6] leases     sorted set, permit of 16 bytes -> epoch ms at which its lease ends
-- KEYS[7] opened     integer, there for a while after a latch was opened
-- ARGV[1] hash tag of the lock, the prefix of its timeout keys
-- ARGV[2] how many holders, waiters and permits are listed
-- Returns {what, number, {field, value, ms left, ...}, token, queue length, {waiter, ms left, ...},
--   ms left of the marker, permits held, {permit, ms left, ...}, 1 if opened}
-- what: 0 nothing, 1 a plain lock, 2 a read-write lock, 3 a number or other text, 4 something else.
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

-- A hash of an application may be large: only one that may be a lock is read.
local what, number, holders = 0, false, {}
local fields = read('hlen', KEYS[1])
local text = not fields and read('get', KEYS[1])
if fields == 0 then
  what = 0
elseif fields then
  local mode = redis.call('hget', KEYS[1], 'mode')
  if fields == 1 and not mode then
    what = 1
  elseif (mode == 'read' or mode == 'write') and fields <= most + 1 then
    what = 2
  else
    what = 4
  end
  if what ~= 4 then
    local pttl = redis.call('pttl', KEYS[1])
    local all = redis.call('hgetall', KEYS[1])
    for n = 1, #all, 2 do
      local left = pttl
      if what == 2 and all[n] ~= 'mode' and string.sub(all[n], -6) ~= ':write' then
        left = -2
        for level = 1, math.min(tonumber(all[n + 1]) or 0, 100) do
          left = math.max(left, redis.call('pttl', ARGV[1] .. ':' .. all[n] .. ':rwlock_timeout:' .. level))
        end
      end
      holders[#holders + 1] = all[n]
      holders[#holders + 1] = all[n + 1]
      holders[#holders + 1] = left
    end
  end
elseif text then
  what, number = 3, string.sub(text, 1, 32)
else
  what = 4
end

local waiters = {}
local queue = read('lrange', KEYS[3], 0, -1) or {}
for n = 1, math.min(#queue, most) do
  waiters[2 * n - 1] = queue[n]
  waiters[2 * n] = left_of(read('zscore', KEYS[4], queue[n]))
end

local permits = {}
local leases = read('zrange', KEYS[6], 0, most - 1, 'withscores') or {}
for n = 1, #leases, 2 do
  permits[n] = leases[n]
  permits[n + 1] = left_of(leases[n + 1])
end
local held = #leases > 0 and redis.call('zcard', KEYS[6]) or 0

return {what, number, holders, read('get', KEYS[2]) or false, #queue, waiters,
  redis.call('pttl', KEYS[5]), held, permits, redis.call('exists', KEYS[7])}
