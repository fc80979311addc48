SELECT count(*) FROM t WHERE n IN (NULL);
enclave t: false
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE n IN (NULL, NULL);
enclave t: false
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE n NOT IN (NULL);
enclave t: false
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE n NOT IN (4, NULL, 5);
enclave t: false
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE NOT (n IN (4, NULL));
enclave t: false
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE NOT (n NOT IN (4, NULL));
enclave t: n in {4}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n BETWEEN NULL AND 5;
enclave t: false
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE n BETWEEN 5 AND NULL;
enclave t: false
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE n NOT BETWEEN 5 AND NULL;
enclave t: n not in {5..-}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n NOT BETWEEN NULL AND 5;
enclave t: n not in {-..5}
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n NOT BETWEEN NULL AND NULL;
enclave t: false
  by id; count
  then direct (0,)

SELECT count(*) FROM t WHERE n IN (1, 2.5, 4e0);
rows __t0 = t(n): true
  by None; left n IN (1, 2.5, 4e0)
  then SELECT count(*) FROM __t0 AS t WHERE n IN (1, 2.5, 4e0)

SELECT id FROM t WHERE n IN (1, m) AND id < 5;
rows __t0 = t(id, n, m): id in {-..4}
  by id; left n IN (1, m)
  then SELECT id FROM __t0 AS t WHERE n IN (1, m) AND id < 5

SELECT id FROM t WHERE n + 1 IN (1, 2) AND id < 5;
rows __t0 = t(id, n): id in {-..4}
  by id; left n + 1 IN (1, 2)
  then SELECT id FROM __t0 AS t WHERE n + 1 IN (1, 2) AND id < 5

SELECT id FROM t WHERE n IN (1, m + 2, 3) AND id < 5;
rows __t0 = t(id, n, m): id in {-..4}
  by id; left n IN (1, m + 2, 3)
  then SELECT id FROM __t0 AS t WHERE n IN (1, m + 2, 3) AND id < 5

SELECT id FROM t WHERE n IN (SELECT m FROM u) AND id < 5;
rows __t0 = t(id, n): id in {-..4}
  by id; left n IN (SELECT m FROM u)
rows __t1 = u(m): true
  by None
  then SELECT id FROM __t0 AS t WHERE n IN (SELECT m FROM __t1 AS u) AND id < 5

SELECT id FROM t WHERE n NOT IN (SELECT m FROM u) AND id < 5;
rows __t0 = t(id, n): id in {-..4}
  by id; left NOT n IN (SELECT m FROM u)
rows __t1 = u(m): true
  by None
  then SELECT id FROM __t0 AS t WHERE n NOT IN (SELECT m FROM __t1 AS u) AND id < 5

SELECT id FROM t WHERE n + 1 IN (SELECT m FROM u) AND id < 5;
rows __t0 = t(id, n): id in {-..4}
  by id; left n + 1 IN (SELECT m FROM u)
rows __t1 = u(m): true
  by None
  then SELECT id FROM __t0 AS t WHERE n + 1 IN (SELECT m FROM __t1 AS u) AND id < 5

SELECT id FROM t WHERE name IN ('a', 5) AND id < 5;
rows __t0 = t(id, name): id in {-..4}
  by id; left name IN ('a', 5)
  then SELECT id FROM __t0 AS t WHERE name IN ('a', 5) AND id < 5

SELECT id FROM t WHERE n IN ('7', 8) AND id < 5;
rows __t0 = t(id, n): id in {-..4}
  by id; left n IN ('7', 8)
  then SELECT id FROM __t0 AS t WHERE n IN ('7', 8) AND id < 5

SELECT id FROM t WHERE ok IN (true, 'x') AND id < 5;
rows __t0 = t(id, ok): id in {-..4}
  by id; left ok IN (TRUE, 'x')
  then SELECT id FROM __t0 AS t WHERE ok IN (true, 'x') AND id < 5

SELECT count(*) FROM t WHERE wood NOT IN ('oak', 'no wood');
enclave t: wood not in {oak}
  by None; count
  then direct (0,)

SELECT count(*) FROM t WHERE n IS NULL OR n = 5;
enclave t: ((n in {} or null) or n in {5})
  by n; count
  then direct (0,)

SELECT count(*) FROM t WHERE n IS DISTINCT FROM 5;
enclave t: (n not in {5} or null)
  by None; count
  then direct (0,)
