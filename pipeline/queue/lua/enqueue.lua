#!lua
-- Put jobs in the queue. Also the audit: a job that is already there, or in work, is left alone.
-- KEYS  1 ready ZSET   2 lease ZSET
-- ARGV  id, score, id, score, ...
-- Returns the number of jobs added.
local added = 0
for i = 1, #ARGV, 2 do
  if not redis.call('ZSCORE', KEYS[2], ARGV[i]) then
    added = added + redis.call('ZADD', KEYS[1], 'NX', ARGV[i + 1], ARGV[i])
  end
end
return added
