SELECT count(*), sum(n), avg(n), count(n) FROM t WHERE id < 10;
enclave t: id in {-..9}
  by id; count, sum n
  then direct (2, 0, 1, 3)

SELECT COUNT(*) AS c FROM t;
enclave t: true
  by None; count
  then direct (0,)

SELECT min(name), max(day), min(n * m) FROM t;
enclave t: true
  by None; count, min name, max day, min (n * m)
  then direct (0, 1, 2)

SELECT sum(price * (1 - price) * (1 + price)) FROM t;
enclave t: true
  by None; count, sum ((price * (100 - price)) * (100 + price))
  then direct (0,)

SELECT sum(n * 2.5 - price), avg(-n) FROM t;
enclave t: true
  by None; count, sum (((n * 25) * 10) - price), sum (0 - n)
  then direct (0, 1)

SELECT var_samp(n), var_pop(n), stddev(price), stddev_pop(f), variance(f) FROM t;
enclave t: true
  by None; count, squares n, squares price, squares f
  then direct (0, 1, 2, 3, 4)

SELECT sum(f), avg(f), min(f) FROM t;
enclave t: true
  by None; count, sum f, min f
  then direct (0, 1, 2)

SELECT wood, count(*) FROM t GROUP BY wood;
enclave t: true
  by None; count
  then SELECT wood, _a0 FROM __groups AS t

SELECT wood AS w, ok, sum(n) AS s FROM t WHERE id < 50 GROUP BY w, 2 HAVING sum(n) > 10 AND w <> 'oak' ORDER BY s DESC, 1 LIMIT 3;
enclave t: id in {-..49}
  by id; count, sum n
  then SELECT wood AS w, ok, _a0 AS s FROM __groups AS t WHERE _a0 > 10 AND w <> 'oak' ORDER BY s DESC, 1 LIMIT 3

SELECT wood, sum(n) / count(*) FROM t GROUP BY ALL ORDER BY ALL;
enclave t: true
  by None; count, sum n
  then SELECT wood, _a0 / _a1 FROM __groups AS t ORDER BY ALL

SELECT sum(n) * 100.0 / count(*) FROM t WHERE n IS NOT DISTINCT FROM 5 OR ok;
enclave t: (n in {5} or ok in {True})
  by None; count, sum n
  then SELECT _a0 * 100.0 / _a1 FROM __groups AS t

SELECT round(avg(n), 2), coalesce(sum(m), 0) FROM t;
enclave t: true
  by None; count, sum n, sum m
  then SELECT round(_a0, 2), coalesce(_a1, 0) FROM __groups AS t

FROM t SELECT count(*) WHERE n < 5;
enclave t: n in {-..4}
  by n; count
  then direct (0,)

SELECT main.t.wood, count(*) FROM main.t GROUP BY main.t.wood;
enclave t: true
  by None; count
  then SELECT t.wood, _a0 FROM __groups AS t

SELECT x.wood, max(x.n) FROM t AS x GROUP BY x.wood;
enclave t: true
  by None; count, max n
  then SELECT x.wood, _a0 FROM __groups AS x

SELECT DISTINCT wood FROM t;
rows __t0 = t(wood): true
  by None
  then SELECT DISTINCT wood FROM __t0 AS t

SELECT wood FROM t GROUP BY wood;
enclave t: true
  by None; count
  then SELECT wood FROM __groups AS t

SELECT count(DISTINCT n) FROM t WHERE id < 10;
rows __t0 = t(id, n): id in {-..9}
  by id
  then SELECT count(DISTINCT n) FROM __t0 AS t WHERE id < 10

SELECT count(*) FILTER (WHERE n > 5) FROM t;
rows __t0 = t(n): true
  by None
  then SELECT count(*) FILTER (WHERE n > 5) FROM __t0 AS t

SELECT day, count(*) FROM t GROUP BY day;
rows __t0 = t(day): true
  by None
  then SELECT day, count(*) FROM __t0 AS t GROUP BY day

SELECT sum(f * 2) FROM t;
rows __t0 = t(f): true
  by None
  then SELECT sum(f * 2) FROM __t0 AS t

SELECT sum(n / 2) FROM t;
rows __t0 = t(n): true
  by None
  then SELECT sum(n / 2) FROM __t0 AS t

SELECT sum(n), list(wood) FROM t;
rows __t0 = t(n, wood): true
  by None
  then SELECT sum(n), list(wood) FROM __t0 AS t

SELECT wood, count(*) FROM t GROUP BY ROLLUP (wood);
rows __t0 = t(wood): true
  by None
  then SELECT wood, count(*) FROM __t0 AS t GROUP BY ROLLUP (wood)

SELECT sum(n) FROM t WHERE length(name) > 2 AND id < 10;
rows __t0 = t(id, n, name): id in {-..9}
  by id; left LENGTH(name) > 2
  then SELECT sum(n) FROM __t0 AS t WHERE length(name) > 2 AND id < 10

SELECT sum(n) AS n FROM t;
rows __t0 = t(n): true
  by None
  then SELECT sum(n) AS n FROM __t0 AS t

SELECT n, count(*) FROM t WHERE id < 5 GROUP BY n;
rows __t0 = t(id, n): id in {-..4}
  by id
  then SELECT n, count(*) FROM __t0 AS t WHERE id < 5 GROUP BY n
