#!lua
-- Give leased jobs back to the queue, each at the score given (its remaining work, its first arrival).
-- KEYS  1 ready ZSET   2 lease ZSET   3 owner HASH   4 heads ZSET
-- ARGV  id, token, score, id, token, score, ...
-- Returns the number given back; one held by somebody else is left alone. One that nobody holds was
-- forgotten or only seeded (see seed.lua): Postgres has said that it waits, or this were not called.
local BASE, given = 1e13, 0
for i = 1, #ARGV, 3 do
  local holder = redis.call('HGET', KEYS[3], ARGV[i])
  if holder == ARGV[i + 1] or not holder and not redis.call('ZSCORE', KEYS[1], ARGV[i]) then
    redis.call('ZREM', KEYS[2], ARGV[i])
    redis.call('HDEL', KEYS[3], ARGV[i])
    redis.call('ZADD', KEYS[1], ARGV[i + 2], ARGV[i])
    local score = tonumber(ARGV[i + 2])
    local bucket = math.floor(score / BASE)
    local arrival = string.format('%.0f', score - bucket * BASE)
    redis.call('ZADD', KEYS[4], 'LT', arrival, string.format('%.0f', bucket))
    given = given + 1
  end
end
return given
