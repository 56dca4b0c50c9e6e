
-- lib/turn: the end of fair_hand_over, behind lib/token. It uses the locals `lock`, `queue`,
-- `deadlines`, `holder`, `field`, `lease`, `next_up` and `token`.
-- The TTL comes first: should it be refused, the lock has not been changed. The holder is removed
-- after the waiter was put beside it: while its slot moves, no command may name a key that the
-- script has deleted.
redis.call('pexpire', lock, lease)
redis.call('hset', lock, field, '1')
redis.call('hdel', lock, holder)
redis.call('lpop', queue)
redis.call('zrem', deadlines, field)
return {1, token, next_up}
