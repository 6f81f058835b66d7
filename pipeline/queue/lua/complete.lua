#!lua
-- Forget jobs that ended. Called after Postgres has the result, never before.
-- KEYS  1 lease ZSET   2 owner HASH
-- ARGV  id, token, id, token, ...; an empty token drops only a lease that nobody owns
-- Returns the number of leases dropped; one held by somebody else is left alone. One that nobody owns
-- was seeded (see seed.lua), most likely for whoever calls; if not, its worker takes it up again.
local dropped = 0
for i = 1, #ARGV, 2 do
  local holder = redis.call('HGET', KEYS[2], ARGV[i])
  if not holder or holder == ARGV[i + 1] then
    dropped = dropped + redis.call('ZREM', KEYS[1], ARGV[i])
    redis.call('HDEL', KEYS[2], ARGV[i])
  end
end
return dropped
