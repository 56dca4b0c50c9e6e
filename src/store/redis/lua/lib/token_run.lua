
-- lib/token_run: draws the further fencing tokens of mutex_acquire; put between lib/token and
-- lib/hold. It uses the locals `token`, `token_key` and `tokens` (how many in all). They are drawn
-- now, because a client that used a token and died before it drew it would leave a counter that
-- gives the same token again.
if tokens ~= '1' and token > 0
  and redis.call('incrby', token_key, tokens - 1) >= 9007199254740992 then
  return redis.error_reply('ERR the fencing token is not an integer below 2^53')
end
