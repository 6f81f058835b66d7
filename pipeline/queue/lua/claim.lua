#!lua
-- Take the jobs that go first and lease them to the caller.
-- Only the heads of size buckets are compared: inside a bucket the oldest leads under any policy.
-- KEYS  1 ready ZSET   2 lease ZSET   3 owner HASH   4 epoch STRING   5 policy STRING
--       6 answer STRING of the calling worker
-- ARGV  1 token of this claim, also its nonce: the same token again gets the same answer
--       2 windows wanted, >= 1; a job counts for as many as its bucket usually has
--       3 lease, ms   4 Postgres time minus Redis TIME, ms
--       5 the policy the pairs below were made from
--       6 floor: bucket, or -1 for none   7 floor: arrival, ms; only jobs that outrank it are taken
--       8.. for each bucket from 0: u, v, windows
-- Returns {'policy', name}                    the pairs are out of date; nothing was taken
--         {'jobs', now ms, epoch or '', id, score, id, score, ...}   now is Postgres time
local BASE, FIRST = 1e13, 8
local seen = redis.call('GET', KEYS[6])
if seen then
  local answer = cjson.decode(seen)
  if answer[1] == ARGV[1] then return answer[2] end
end
local policy = redis.call('GET', KEYS[5])
if policy and policy ~= ARGV[5] then return { 'policy', policy } end

local time = redis.call('TIME')
local redis_now = time[1] * 1000 + math.floor(time[2] / 1000)
local now = redis_now + tonumber(ARGV[4])

local function text(number) return string.format('%.0f', number) end
local function rank(bucket, arrival)
  local at = FIRST + bucket * 3
  return tonumber(ARGV[at]) * math.max(0, now - arrival) + tonumber(ARGV[at + 1])
end
local function head(bucket_from, below)
  local found = redis.call('ZRANGE', KEYS[1], text(bucket_from * BASE), below,
    'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  if #found == 0 then return nil end
  local score = tonumber(found[2])
  local bucket = math.floor(score / BASE)
  local arrival = score - bucket * BASE
  return { id = found[1], score = score, bucket = bucket, arrival = arrival,
           rank = rank(bucket, arrival) }
end

local heads, bucket = {}, 0
while true do
  local first = head(bucket, '+inf')
  if not first then break end
  heads[#heads + 1] = first
  bucket = first.bucket + 1
end

local floor_bucket, floor_arrival = tonumber(ARGV[6]), tonumber(ARGV[7])
local floor_rank = floor_bucket >= 0 and rank(floor_bucket, floor_arrival) or nil
local function outranks_floor(job)
  if not floor_rank or job.rank ~= floor_rank then
    return not floor_rank or job.rank > floor_rank
  end
  if job.bucket ~= floor_bucket then return job.bucket < floor_bucket end
  return job.arrival < floor_arrival
end

local jobs, wanted = { 'jobs', text(now), redis.call('GET', KEYS[4]) or '' }, tonumber(ARGV[2])
while wanted > 0 do
  local best = 0
  for i = 1, #heads do
    -- strictly greater: heads stand in order of bucket, so a tie stays with the smaller one
    if heads[i] and (best == 0 or heads[i].rank > heads[best].rank) then best = i end
  end
  if best == 0 or not outranks_floor(heads[best]) then break end
  local job = heads[best]
  redis.call('ZREM', KEYS[1], job.id)
  redis.call('ZADD', KEYS[2], text(redis_now + tonumber(ARGV[3])), job.id)
  redis.call('HSET', KEYS[3], job.id, ARGV[1])
  jobs[#jobs + 1] = job.id
  jobs[#jobs + 1] = text(job.score)
  wanted = wanted - tonumber(ARGV[FIRST + job.bucket * 3 + 2])
  heads[best] = head(job.bucket, '(' .. text((job.bucket + 1) * BASE)) or false
end
if #jobs > 3 then redis.call('SET', KEYS[6], cjson.encode({ ARGV[1], jobs }), 'PX', 60000) end
return jobs
