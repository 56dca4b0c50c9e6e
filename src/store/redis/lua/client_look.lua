-- client_look: returns what a client wrote about itself, and when that expires.
-- KEYS[1] client    string
-- Returns {pttl, text}; pttl is -2 and the text is missing if there is nothing
-- Repeat-safe: yes, it only reads.
return {redis.call('pttl', KEYS[1]), redis.call('get', KEYS[1])}
