SELECT count(*) FROM t WHERE n = 5;
enclave t: n in {5}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE 5 < n;
enclave t: n in {6..-}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n <> 5;
enclave t: n not in {5}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n = 2.5;
enclave t: n in {}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n > 2.5 AND n <= 10;
enclave t: n in {3..10}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n BETWEEN 3 AND 9;
enclave t: n in {3..9}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n NOT BETWEEN 3 AND 9;
enclave t: n not in {3..9}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n BETWEEN 9 AND 3;
enclave t: n in {}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n IN (1, 2, 3, 7, NULL);
enclave t: n in {1..3, 7}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n NOT IN (1, 2, NULL);
enclave t: false
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE n NOT IN (1, 7);
enclave t: n not in {1, 7}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n = NULL;
enclave t: false
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE n IS NULL;
enclave t: (n in {} or null)
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n IS NOT NULL AND id < 20;
enclave t: (n not in {} and id in {-..19})
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE NOT (n > 5 OR day IS NULL);
enclave t: (n not in {6..-} and day not in {})
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE ok;
enclave t: ok in {True}
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE NOT ok;
enclave t: ok not in {True}
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE ok IS NOT TRUE;
enclave t: (ok not in {True} or null)
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE n IS DISTINCT FROM 3;
enclave t: (n not in {3} or null)
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE n IS NOT DISTINCT FROM NULL;
enclave t: (n in {} or null)
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE (n > 3) IS FALSE;
enclave t: n not in {4..-}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n < m;
enclave t: n < m
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE n >= m;
enclave t: m <= n
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE n BETWEEN m AND id;
enclave t: (m <= n and n <= id)
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE n = price;
rows __t0 = t(n, price): true
  by None; left n = price
  then SELECT count(*) FROM __t0 AS t WHERE n = price

SELECT count(*) FROM t WHERE day >= '2020-01-10' AND day < DATE '2020-01-10' + INTERVAL '1' WEEK;
enclave t: day in {2020-01-10..2020-01-16}
  by day; count
  then direct (0,)

SELECT count(*) FROM t WHERE price < 0.06 - 0.01;
enclave t: price in {-..0.04}
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE price = -1.25;
enclave t: price in {-1.25}
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE day = CAST('2020-01-02' AS DATE);
enclave t: day in {2020-01-02}
  by day; count
  then direct (0,)

SELECT count(*) FROM t WHERE wood LIKE '%ir%';
enclave t: wood in {birch}
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE wood NOT LIKE 'b%';
enclave t: wood not in {birch}
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE wood ILIKE 'B%';
enclave t: wood in {birch}
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE wood > 'b';
enclave t: wood in {birch..-}
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE name LIKE 'ab%';
enclave t: name in {ab.....}
  by name; count
  then direct (0,)

SELECT count(*) FROM t WHERE starts_with(name, 'ab');
enclave t: name in {ab.....}
  by name; count
  then direct (0,)

SELECT count(*) FROM t WHERE name = 'abc';
enclave t: name in {abc}
  by name; count
  then direct (0,)

SELECT count(*) FROM t WHERE name LIKE '%b';
rows __t0 = t(name): true
  by None; left name LIKE '%b'
  then SELECT count(*) FROM __t0 AS t WHERE name LIKE '%b'

SELECT count(*) FROM t WHERE TRUE;
enclave t: true
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE FALSE;
enclave t: false
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE n = 3 OR day = '2020-01-05';
enclave t: (n in {3} or day in {2020-01-05})
  by n + day; count
  then direct (0,)

SELECT count(*) FROM t WHERE (n = 3 OR day = '2020-01-05' OR day = '2020-01-20' OR id = 7) AND ok;
enclave t: ((n in {3} or day in {2020-01-05} or day in {2020-01-20} or id in {7}) and ok in {True})
  by n + day + id; count
  then direct (0,)

SELECT count(*) FROM t WHERE n = 3 OR price = 1;
enclave t: (n in {3} or price in {1.00})
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE moment = TIMESTAMP '2020-01-01 05:00:00';
enclave t: moment in {2020-01-01 05:00:00}
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE f > 0.5;
enclave t: f in {0.5000000000000001..-}
  by None; count
  then direct (0,)
