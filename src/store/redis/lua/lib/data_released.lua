
-- lib/data_released: the end of the scripts that give up a lock with data; put behind those. It uses
-- their locals `data`, `granted` and `holder`.
local answer = inner({unpack(KEYS, 2)}, {unpack(ARGV, 2)})
if answer[1] == 2 and redis.pcall('hget', data, 'holder') == holder then
  if granted == '1' then
    set_until(data, 0)
  else
    redis.call('del', data)
  end
end
return answer
