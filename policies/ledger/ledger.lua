-- The ledger on a Valkey or Redis server: each call of this script is one step of one hold, done whole or not at all.
--
-- KEYS[1] is `spangate:{home}:leases`; every other key begins like it and so lives in the same slot of a cluster:
--   leases              zset: a gateway's instance -> when its lease ends (ms)
--   holds:INSTANCE      hash: a hold's id -> its parts, packed; {seq, {suffix, kind, key, place, held, edge}, …}
--   c:SUFFIX[|START]    hash: a counter: u(sed), r(eserved), l(imit); a calendar's window each has its own, named by its start
--                       of a rolling one also its slots s1, s2, … = "used reserved", o(ldest) and n(ewest) slot, t(ime) last seen, k(ew)
--   done:ID             this hold is settled: whoever retries, or comes late, does nothing
--   t:SUFFIX[|END]      the highest threshold of a counter that was told, in a calendar's window that ends then
--   lapsed:ID           its parts, settled at what was held because its gateway fell silent; put right if it speaks again
--
-- ARGV is what to do and, packed, with what. Amounts are decimal strings of billionths. Lua's numbers are exact to 2^53 only, so they are counted in two: whole units, and the rest.
-- Time is the server's, in microseconds. A rolling counter's own time never goes back: `k` is what it is ahead of a clock that did.

local base = string.sub(KEYS[1], 1, -7)
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local SLOTS = 60
local DONE, LAPSED = 300, 86400                    -- seconds
local IDLE, KEPT, LATE = 3456000, 34560000, 7200   -- seconds: holds of nobody; `total`, after its last use; a window after its end
local AT_ONCE = 100                                -- holds of a silent gateway that one step settles
local WAIT = 1000                                  -- milliseconds until those that could not be settled are looked at again

-- A key of another type is none of ours. Who it was that wrote it, a person has to find out: so the error names the key, and its type.
local function call(command, key, ...)
  local said = redis.pcall(command, key, ...)
  if type(said) ~= 'table' or not said.err then return said end
  if not string.find(said.err, 'WRONGTYPE', 1, true) then return redis.call(command, key, ...) end
  error('WRONGTYPE ' .. redis.call('TYPE', key).ok .. ' "' .. key .. '"', 0)
end

-- amounts: two numbers

local function split(text)
  if not text or text == '' then return 0, 0 end
  local length = #text
  if length <= 9 then return 0, tonumber(text) end
  return tonumber(string.sub(text, 1, length - 9)), tonumber(string.sub(text, length - 8))
end

local function join(units, rest)
  if units == 0 then return string.format('%.0f', rest) end
  return string.format('%.0f%09.0f', units, rest)
end

local function add(units, rest, more, more_rest)
  units, rest = units + more, rest + more_rest
  if rest >= 1000000000 then return units + 1, rest - 1000000000 end
  return units, rest
end

local function take(units, rest, less, less_rest)   -- never below nothing: what a server forgot can't be given back
  units, rest = units - less, rest - less_rest
  if rest < 0 then units, rest = units - 1, rest + 1000000000 end
  if units < 0 then return 0, 0 end
  return units, rest
end

local function more_than(units, rest, other, other_rest)
  return units > other or (units == other and rest > other_rest)
end

local function times(units, rest, count)   -- of the rest in two halves, or it would be more than a number holds
  local high, low = math.floor(rest / 100000) * count, rest % 100000 * count
  low = low + high % 10000 * 100000
  return units * count + math.floor(high / 10000) + math.floor(low / 1000000000), low % 1000000000
end

-- How many steps are at least so much; where `most` are too few, more than that.
local function steps_of(units, rest, step, step_rest, most)
  if step == 0 and step_rest == 0 then return most + 1 end
  local count = math.ceil((units * 1000000000 + rest) / (step * 1000000000 + step_rest))
  if count > most + 1 then return most + 1 end
  while count > 0 and not more_than(units, rest, times(step, step_rest, count - 1)) do count = count - 1 end
  while more_than(units, rest, times(step, step_rest, count)) do count = count + 1 end
  return count
end

-- counters: loaded once a step, changed in tables, stored once

local loaded, order = {}, {}

local function slot_of(counter, number)
  local slot = counter.slots[number]
  if slot == nil then
    local text = call('HGET', counter.key, 's' .. number)
    slot = false
    if text then
      local used, held = string.match(text, '^(%d+) (%d+)$')
      local uu, ur = split(used)
      local hu, hr = split(held)
      slot = {uu, ur, hu, hr}
    end
    counter.slots[number] = slot
  end
  return slot
end

local function roll(counter, width)
  local found = call('HMGET', counter.key, 'o', 'n', 't', 'k')
  local time, skew = tonumber(found[3] or 0), tonumber(found[4] or 0)
  if now + skew < time then   -- kept at once, or time would stand still until the next call that is admitted
    skew = time - now
    call('HSET', counter.key, 'k', string.format('%.0f', skew))
  end
  counter.time, counter.skew, counter.width = now + skew, skew, width
  counter.slot = math.floor(counter.time / width)
  counter.oldest, counter.newest = tonumber(found[1] or counter.slot), tonumber(found[2] or counter.slot)
  local keep = counter.slot - SLOTS
  if counter.newest < keep then
    call('DEL', counter.key)
    counter.uu, counter.ur, counter.hu, counter.hr = 0, 0, 0, 0
    counter.oldest, counter.newest = counter.slot, counter.slot
  elseif counter.oldest < keep then
    local gone = {}
    for number = counter.oldest, keep - 1 do
      local slot = slot_of(counter, number)
      if slot then
        counter.uu, counter.ur = take(counter.uu, counter.ur, slot[1], slot[2])
        counter.hu, counter.hr = take(counter.hu, counter.hr, slot[3], slot[4])
        gone[#gone + 1] = 's' .. number
      end
      counter.slots[number] = false
    end
    counter.oldest = keep
    if #gone > 0 then
      call('HDEL', counter.key, unpack(gone))
      call('HSET', counter.key, 'u', join(counter.uu, counter.ur), 'r', join(counter.hu, counter.hr), 'o', counter.oldest)
    end
  end
end

local function load(kind, key, edge)
  local counter = loaded[key]
  if counter then return counter end
  local found = call('HMGET', key, 'u', 'r', 'l')
  counter = {kind = kind, key = key, edge = edge, limit = found[3] or '0', slots = {}, changed = {}}
  counter.uu, counter.ur = split(found[1])
  counter.hu, counter.hr = split(found[2])
  if kind == 'r' then roll(counter, edge) end
  loaded[key] = counter
  order[#order + 1] = counter
  return counter
end

-- Put so much more on a counter's used and reserved, or take it off (sign -1); in a rolling one, on the slot too, while it counts.
local function charge(counter, place, used, ur, held, hr, sign)
  local change = sign > 0 and add or take
  if counter.kind == 'r' then
    if place < counter.slot - SLOTS or place > counter.slot then return end
    local slot = slot_of(counter, place) or {0, 0, 0, 0}
    slot[1], slot[2] = change(slot[1], slot[2], used, ur)
    slot[3], slot[4] = change(slot[3], slot[4], held, hr)
    counter.slots[place], counter.changed[place] = slot, true
    counter.oldest, counter.newest = math.min(counter.oldest, place), math.max(counter.newest, place)
  end
  counter.uu, counter.ur = change(counter.uu, counter.ur, used, ur)
  counter.hu, counter.hr = change(counter.hu, counter.hr, held, hr)
  counter.dirty = true
end

local function store(counter)
  if not counter.dirty then return end
  local key = counter.key
  if counter.kind == 'm' then
    if counter.hu == 0 and counter.hr == 0 then call('DEL', key) return end
    call('HSET', key, 'r', join(counter.hu, counter.hr), 'l', counter.limit)
    call('EXPIRE', key, IDLE)
    return
  end
  local fields = {'u', join(counter.uu, counter.ur), 'r', join(counter.hu, counter.hr), 'l', counter.limit}
  if counter.kind == 'r' then
    local more = {'o', counter.oldest, 'n', counter.newest, 't', string.format('%.0f', counter.time), 'k', string.format('%.0f', counter.skew)}
    for _, each in ipairs(more) do fields[#fields + 1] = each end
    for number in pairs(counter.changed) do
      local slot = counter.slots[number]
      fields[#fields + 1] = 's' .. number
      fields[#fields + 1] = join(slot[1], slot[2]) .. ' ' .. join(slot[3], slot[4])
    end
  end
  call('HSET', key, unpack(fields))
  if counter.kind == 'r' then
    call('PEXPIRE', key, math.ceil(counter.width * (SLOTS + 2) / 1000) + 1000)
  elseif counter.edge > 0 then
    call('EXPIREAT', key, counter.edge + LATE)
  else
    call('EXPIRE', key, KEPT)
  end
end

local function store_all()
  for _, counter in ipairs(order) do store(counter) end
end

-- Microseconds until so much less is counted, or -1.
local function until_less(counter, units, rest)
  if counter.kind == 'm' or (counter.kind == 'f' and counter.edge == 0) then return -1 end
  if counter.kind == 'f' then return counter.edge * 1000000 - now end
  for number = counter.oldest, counter.newest do
    local slot = slot_of(counter, number)
    if slot then
      units, rest = take(units, rest, slot[1], slot[2])
      units, rest = take(units, rest, slot[3], slot[4])
      if units == 0 and rest == 0 then return (number + SLOTS + 1) * counter.width - counter.time end
    end
  end
  return -1
end

-- How it stands: limit, used, reserved, over, when all of it is forgotten (us, -1: never), when the claim fits (us from now, -1: nobody
-- knows). `charged`: the claim is in it already.
local function standing(counter, claim, charged)
  local units, rest = add(counter.uu, counter.ur, counter.hu, counter.hr)
  if not charged then units, rest = add(units, rest, claim.au, claim.ar) end
  local none = claim.lu == 0 and claim.lr == 0
  local over, fits = none or more_than(units, rest, claim.lu, claim.lr), -1
  if not charged and not none and more_than(units, rest, claim.mu, claim.mr) and not more_than(claim.au, claim.ar, claim.mu, claim.mr) then
    fits = until_less(counter, take(units, rest, claim.mu, claim.mr))
  end
  local resets = -1
  if counter.kind == 'f' and counter.edge > 0 then resets = counter.edge * 1000000 end
  if counter.kind == 'r' then
    local counted = counter.uu + counter.ur + counter.hu + counter.hr > 0
    resets = counted and now + (counter.newest + SLOTS + 1) * counter.width - counter.time or now
  end
  return {counter.limit, join(counter.uu, counter.ur), join(counter.hu, counter.hr), over and 1 or 0, resets, fits}
end

-- holds

local function settle_part(part, actual)
  local kind, key, place, held, edge = part[2], part[3], part[4], part[5], part[6]
  if kind == 'f' and edge > 0 and now >= (edge + LATE) * 1000000 then return end
  local counter = load(kind, key, edge)
  local hu, hr = split(held)
  charge(counter, place, 0, 0, hu, hr, -1)
  if kind == 'm' then return end
  local uu, ur = split(actual or held)
  charge(counter, place, uu, ur, 0, 0, 1)
end

-- Whether all counters of a hold are there, or not yet.
local function sound(parts)
  for number = 2, #parts do
    local type = call('TYPE', parts[number][3]).ok
    if type ~= 'hash' and type ~= 'none' then return false end
  end
  return true
end

-- Holds of a gateway that fell silent are settled at what was held. Those with a counter of another type wait until it is gone, for who
-- comes to another counter has nothing to do with it.
local function lapse()
  local gone = call('ZRANGEBYSCORE', KEYS[1], '-inf', math.floor(now / 1000), 'LIMIT', 0, 1)[1]
  if not gone then return end
  local holds, waits = base .. 'holds:' .. gone, false
  local found = call('HRANDFIELD', holds, AT_ONCE, 'WITHVALUES')
  for index = 1, #found, 2 do
    local parts = cmsgpack.unpack(found[index + 1])
    if sound(parts) then
      call('HDEL', holds, found[index])
      for number = 2, #parts do settle_part(parts[number], nil) end
      call('SET', base .. 'lapsed:' .. found[index], found[index + 1], 'EX', LAPSED)
    else
      waits = true
    end
  end
  store_all()
  if call('EXISTS', holds) == 0 then
    call('ZREM', KEYS[1], gone)
  elseif waits then   -- others' turn
    call('ZADD', KEYS[1], math.floor(now / 1000) + WAIT, gone)
  end
end

-- beat {instance, lease}   Still there, for so many milliseconds.
local function beat(instance, lease)
  call('ZADD', KEYS[1], math.floor(now / 1000) + lease, instance)
  call('EXPIRE', KEYS[1], IDLE)
  lapse()
end

-- Claims come as {suffix, kind, edge, edge, edge, amount, limit, limit and grace, full, step}. Edges: of a rolling window the width of a slot (us);
-- of a calendar's the start and end of the one that the gateway thinks it is, and the end of the next (seconds): one of these two, or none.
local function read_claims(asked)
  local claims = {}
  for number, each in ipairs(asked) do
    local claim = {suffix = each[1], kind = each[2], amount = each[6], limit = each[7], full = each[9]}
    claim.au, claim.ar = split(each[6])
    claim.lu, claim.lr = split(each[7])
    claim.mu, claim.mr = split(each[8])
    claim.su, claim.sr = split(each[10])
    claim.key, claim.place, claim.edge = base .. 'c:' .. claim.suffix, 0, 0
    if claim.kind == 'r' then
      claim.edge = each[3]
    elseif claim.kind == 'f' then
      local start, edge = each[3], each[4]
      if edge > 0 and now >= edge * 1000000 then start, edge = edge, each[5] end
      if edge > 0 and (now < start * 1000000 or now >= edge * 1000000) then return nil end
      claim.key, claim.place, claim.edge = claim.key .. '|' .. string.format('%.0f', start), start, edge
    end
    claims[number] = claim
  end
  return claims
end

local function answer(word, claims, left_out)
  local said = {word, now, left_out or 0}
  for _, claim in ipairs(claims) do
    for _, each in ipairs(claim.said) do said[#said + 1] = each end
    said[#said + 1] = claim.place
  end
  return said
end

-- How many steps have to be left out for what may be lowered to fit; none, if so many can't be spared.
local function left_out_of(claims, spare)
  local most = 0
  for _, claim in ipairs(claims) do
    if claim.full == 'l' then
      local counter = claim.counter
      local units, rest = add(counter.uu, counter.ur, counter.hu, counter.hr)
      units, rest = add(units, rest, claim.au, claim.ar)
      if more_than(units, rest, claim.mu, claim.mr) then
        units, rest = take(units, rest, claim.mu, claim.mr)
        most = math.max(most, steps_of(units, rest, claim.su, claim.sr, spare))
      end
    end
  end
  return most <= spare and most or 0
end

-- The same of a hold that has them already.
local function left_out_before(claims, mine, spare)
  for _, claim in ipairs(claims) do
    local part = mine[claim.suffix]
    if part and claim.full == 'l' and (claim.su > 0 or claim.sr > 0) then
      local hu, hr = split(part[5])
      local units, rest = take(claim.au, claim.ar, hu, hr)
      return steps_of(units, rest, claim.su, claim.sr, spare)
    end
  end
  return 0
end

-- reserve {instance, lease, id, seq, spare}, claims   `seq` 1 reserves, a higher one extends; one that was done already changes nothing.
local function reserve(told, asked)
  local instance, lease, id, seq, spare = unpack(told)
  local claims = read_claims(asked)
  if not claims then return {'window', now} end
  beat(instance, lease)
  if call('EXISTS', base .. 'done:' .. id) == 1 then return {'done', now} end
  local holds = base .. 'holds:' .. instance
  local packed = call('HGET', holds, id)
  local parts = packed and cmsgpack.unpack(packed) or {0}
  local lapsed = not packed and call('GET', base .. 'lapsed:' .. id)
  if lapsed then
    parts = cmsgpack.unpack(lapsed)
    for number = 2, #parts do
      local part = parts[number]
      local counter, hu, hr = load(part[2], part[3], part[6]), split(part[5])
      if part[2] ~= 'm' then charge(counter, part[4], hu, hr, 0, 0, -1) end
      charge(counter, part[4], 0, 0, hu, hr, 1)
    end
  end
  local again, refused = parts[1] >= seq, false
  local mine = {}
  for number = 2, #parts do mine[parts[number][1]] = parts[number] end
  for _, claim in ipairs(claims) do
    local part = mine[claim.suffix]
    if part and claim.kind == 'f' then claim.key, claim.place, claim.edge = part[3], part[4], part[6] end
    claim.counter = load(claim.kind, claim.key, claim.edge)
    if claim.kind == 'r' then claim.place = part and part[4] or claim.counter.slot end
    claim.counter.limit = claim.limit
  end
  local left_out = 0
  if spare > 0 then left_out = again and left_out_before(claims, mine, spare) or left_out_of(claims, spare) end
  local taken = {}
  for _, claim in ipairs(claims) do
    local counter = claim.counter
    if again then claim.au, claim.ar, claim.full = 0, 0, 'c' end
    if left_out > 0 and not again then
      claim.wu, claim.wr = claim.au, claim.ar
      claim.au, claim.ar = take(claim.au, claim.ar, times(claim.su, claim.sr, left_out))
    end
    local units, rest = add(counter.uu, counter.ur, counter.hu, counter.hr)
    units, rest = add(units, rest, claim.au, claim.ar)
    local misfit = (claim.lu == 0 and claim.lr == 0) or more_than(units, rest, claim.mu, claim.mr)
    claim.misfit = misfit and claim.full ~= 'c'
    claim.refuses = claim.misfit and claim.full ~= 's'
    if claim.misfit then
      refused = refused or claim.refuses
      claim.said = standing(counter, claim)
    else
      charge(counter, claim.place, 0, 0, claim.au, claim.ar, 1)
      claim.said = standing(counter, claim, true)
      taken[#taken + 1] = claim
    end
  end
  if refused then
    for _, claim in ipairs(taken) do charge(claim.counter, claim.place, 0, 0, claim.au, claim.ar, -1) end
    for _, claim in ipairs(claims) do
      if claim.wu then claim.au, claim.ar = claim.wu, claim.wr end
      claim.said = standing(claim.counter, claim)
      if claim.refuses then claim.place = -2 end
    end
    return answer('refused', claims)
  end
  if lapsed then call('DEL', base .. 'lapsed:' .. id) end
  for _, claim in ipairs(claims) do if claim.misfit then claim.place = -1 end end
  if not again then
    parts[1] = seq
    for _, claim in ipairs(taken) do
      local part = mine[claim.suffix]
      if part then
        local units, rest = split(part[5])
        part[5] = join(add(units, rest, claim.au, claim.ar))
      else
        part = {claim.suffix, claim.kind, claim.key, claim.place, join(claim.au, claim.ar), claim.edge}
        mine[claim.suffix] = part
        parts[#parts + 1] = part
      end
    end
  end
  if lapsed or not again then
    call('HSET', holds, id, cmsgpack.pack(parts))
    call('EXPIRE', holds, IDLE)
    store_all()
  end
  return answer('held', claims, left_out)
end

-- settle {instance, id, everything, {suffix = actual}}, parts, late   What isn't told was what was held; `everything`, if it isn't '',
-- is what all of them were. The parts are for a server that has forgotten the hold: {suffix, kind, key, place, actual, edge}.
-- `late`: it was tried so long ago that `done` may be forgotten; then nothing is counted that isn't there, and the answer is `lost`.
-- What is read comes before what is written: a step that fails has changed nothing.
local function settle(told, own, late)
  local instance, id, everything, actual = unpack(told)
  local holds = base .. 'holds:' .. instance
  local packed = call('HGET', holds, id)
  local lapsed = not packed and call('GET', base .. 'lapsed:' .. id)
  local word = 'settled'
  if packed or lapsed then
    local parts = cmsgpack.unpack(packed or lapsed)
    for number = 2, #parts do
      local part = parts[number]
      if lapsed and part[2] ~= 'm' then   -- what was held is counted as used already
        local uu, ur = split(part[5])
        charge(load(part[2], part[3], part[6]), part[4], uu, ur, 0, 0, -1)
      end
      local counted = everything ~= '' and everything or actual[part[1]] or part[5]
      if lapsed then part[5] = '0' end
      settle_part(part, counted)
    end
    call('HDEL', holds, id)
    call('DEL', base .. 'lapsed:' .. id)
  elseif call('EXISTS', base .. 'done:' .. id) == 0 then
    if late then word, own = 'lost', {} end
    for _, part in ipairs(own) do
      local counted = part[5]
      part[3], part[5] = base .. 'c:' .. part[3], '0'
      settle_part(part, counted)
    end
  end
  call('SET', base .. 'done:' .. id, '1', 'EX', DONE)
  store_all()
  return {word, now}
end

-- read {}, claims   How they stand; nothing is reserved.
local function read(asked)
  local claims = read_claims(asked)
  if not claims then return {'window', now} end
  lapse()
  for _, claim in ipairs(claims) do
    local counter = load(claim.kind, claim.key, claim.edge)
    if claim.limit == '' then   -- whatever was last asked with
      claim.lu, claim.lr = split(counter.limit)
      claim.mu, claim.mr = claim.lu, claim.lr
    else
      counter.limit = claim.limit
    end
    claim.said = standing(counter, claim)
  end
  return answer('read', claims)
end

-- told {suffix, level, seconds}   Whether nobody has told of so much of the counter, or of more; from now on, for so long, somebody has.
local function told(suffix, level, seconds)
  local key = base .. 't:' .. suffix
  if tonumber(call('GET', key) or -1) >= tonumber(level) then return {'told', now, 0} end
  call('SET', key, level, 'EX', seconds)
  return {'told', now, 1}
end

local op, said = ARGV[1], ARGV[2] and cmsgpack.unpack(ARGV[2]) or {}
if op == 'reserve' then return reserve(said[1], said[2]) end
if op == 'settle' then return settle(said[1], said[2], ARGV[3] == '1') end
if op == 'read' then return read(said[2]) end
if op == 'told' then return told(unpack(said[1])) end
if op == 'beat' then beat(unpack(said)) end
if op == 'ping' then call('SETRANGE', base .. 'ping', 0, '') end   -- which writes nothing, but not on a replica, or a full server
return {op, now}
