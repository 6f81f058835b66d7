#!lua
-- Take jobs back that wait though their worker has them in hand: an audit that looked just before their
-- grant put them in the queue. Asked only once Postgres has said that they are still this attempt's.
-- KEYS  1 ready ZSET   2 lease ZSET   3 owner HASH
-- ARGV  1 lease, ms   2.. id, token, id, token, ...
-- Returns for each id: 1 taken back   0 it does not wait: somebody has claimed it, and Postgres decides
local time = redis.call('TIME')
local lease_end = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1]))
local answers = {}
for i = 2, #ARGV, 2 do
  local taken = redis.call('ZREM', KEYS[1], ARGV[i])
  if taken == 1 then
    redis.call('ZADD', KEYS[2], lease_end, ARGV[i])
    redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  end
  answers[#answers + 1] = taken
end
return answers
