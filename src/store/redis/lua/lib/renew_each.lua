-- lib/renew_each: calls the local function `renew` of the script for every hold, and returns one
-- answer for each; put behind the scripts whose renewal of one hold takes several commands.
-- KEYS[i] what the hold is in
-- ARGV[i] who holds it
-- ARGV[#KEYS + i] its lease in ms
-- ARGV[2 * #KEYS + i] what else `renew` needs

local answers = {}
for i = 1, #KEYS do
  -- pcall, because with a plain call one key of the wrong type would leave every later hold
  -- unrenewed.
  local done, answer = pcall(renew, KEYS[i], ARGV[i], tonumber(ARGV[#KEYS + i]), ARGV[2 * #KEYS + i])
  -- Redis 6.2 raises a text, later versions raise a table.
  answers[i] = (done or type(answer) == 'table') and answer or redis.error_reply(answer)
end
return answers
