
-- lib/turn: the end of fair_hand_over, behind lib/token. It uses the locals `lock`, `field`,
-- `lease`, `next_up` and `token`.
-- The TTL comes first: should it be refused, nothing has been changed. The holder is removed after
-- the waiter was put beside it: while its slot moves, no command may name a key that the script has
-- deleted.
redis.call('pexpire', lock, lease)
redis.call('hset', lock, field, '1')
redis.call('hdel', lock, ARGV[1])
redis.call('lpop', KEYS[2])
redis.call('zrem', KEYS[3], field)
return {1, token, next_up}
