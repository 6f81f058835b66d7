#!lua
-- Forget jobs that ended. Called after Postgres has the result, never before.
-- KEYS  1 lease ZSET   2 owner HASH
-- ARGV  id, token, id, token, ...; an empty token is that of a lease nobody owns (see seed.lua)
-- Returns the number of leases dropped; one held by somebody else is left alone.
local dropped = 0
for i = 1, #ARGV, 2 do
  if (redis.call('HGET', KEYS[2], ARGV[i]) or '') == ARGV[i + 1] then
    dropped = dropped + redis.call('ZREM', KEYS[1], ARGV[i])
    redis.call('HDEL', KEYS[2], ARGV[i])
  end
end
return dropped
