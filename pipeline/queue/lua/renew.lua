#!lua
-- Extend leases in hand. A lease that Redis forgot (index lost, or only seeded) is taken up again.
-- KEYS  1 ready ZSET   2 lease ZSET   3 owner HASH
-- ARGV  1 lease, ms   2.. id, token, id, token, ...
-- Returns for each id: 1 extended
--                      2 taken up again: nobody held it and it did not wait; ask Postgres whether
--                        the job is still this attempt's, and `complete` it if not
--                      0 lost: somebody else holds it, or it waits again; stop and write nothing
local time = redis.call('TIME')
local lease_end = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1]))
local answers = {}
for i = 2, #ARGV, 2 do
  local id, token = ARGV[i], ARGV[i + 1]
  local holder, answer = redis.call('HGET', KEYS[3], id), 0
  if holder == token then
    answer = 1
  elseif not holder and not redis.call('ZSCORE', KEYS[1], id) then
    answer = 2
  end
  if answer > 0 then
    redis.call('ZADD', KEYS[2], lease_end, id)
    redis.call('HSET', KEYS[3], id, token)
  end
  answers[#answers + 1] = answer
end
return answers
