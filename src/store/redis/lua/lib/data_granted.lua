
-- lib/data_granted: the end of the scripts that take a lock with data; put behind those. It uses
-- their locals `data`, `lock`, `text`, `outermost` and `holder`.
-- Asked before anything changes: something else may have the name of the data.
local refused = redis.pcall('hexists', data, 'holder')
if type(refused) == 'table' then
  return refused
end
local answer = inner({unpack(KEYS, 2)}, {unpack(ARGV, 3)})
if answer[1] == 1 then
  -- A repeat finds its own data, which may have been replaced since the grant, and keeps it.
  keep_data(data, redis.call('pttl', lock), holder, '0', outermost == '1' and text,
    answer[2])
end
return answer
