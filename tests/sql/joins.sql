SELECT 1;
then SELECT 1

SELECT * FROM t;
rows __t0 = t(id, n, price, f, ok, day, moment, wood, name, m): true
  by None
  then SELECT * FROM __t0 AS t

SELECT id FROM t WHERE n BETWEEN 3 AND 9 ORDER BY day LIMIT 5;
rows __t0 = t(id, n, day): n in {3..9}
  by n
  then SELECT id FROM __t0 AS t WHERE n BETWEEN 3 AND 9 ORDER BY day LIMIT 5

SELECT count(*) FROM t, u;
rows __t0 = t(ok): true
  by None
rows __t1 = u(ok): true
  by None
  then SELECT count(*) FROM __t0 AS t, __t1 AS u

SELECT a.n, b.price FROM t a JOIN u b ON a.id = b.id AND b.n > 3 WHERE a.id < 10 AND a.n + b.n > 3;
rows __t0 = t(id, n): id in {-..9}
  by id
rows __t1 = u(id, n, price): (n in {4..-} and id in {-..9})
  by None
  then SELECT a.n, b.price FROM __t0 a JOIN __t1 b ON a.id = b.id AND b.n > 3 WHERE a.id < 10 AND a.n + b.n > 3

SELECT a.id FROM t a LEFT JOIN u b ON a.n = b.n AND b.price > 1 AND a.m > 2 WHERE b.day > '2020-01-05';
rows __t0 = t(id, n, m): true
  by None; left a.m > 2
rows __t1 = u(n, price, day): (price in {1.01..-} and day in {2020-01-06..-})
  by None
  then SELECT a.id FROM __t0 a LEFT JOIN __t1 b ON a.n = b.n AND b.price > 1 AND a.m > 2 WHERE b.day > '2020-01-05'

SELECT a.id FROM t a LEFT JOIN u b ON a.n = b.n WHERE b.day IS NULL AND a.id < 5;
rows __t0 = t(id, n): id in {-..4}
  by id
rows __t1 = u(n, day): true
  by None; left b.day IS NULL
  then SELECT a.id FROM __t0 a LEFT JOIN __t1 b ON a.n = b.n WHERE b.day IS NULL AND a.id < 5

SELECT b.id FROM t a RIGHT JOIN u b ON a.n = b.n AND a.m > 2 AND b.m > 3 WHERE b.id < 5;
rows __t0 = t(n, m): m in {3..-}
  by None
rows __t1 = u(id, n, m): id in {-..4}
  by None; left b.m > 3
  then SELECT b.id FROM __t0 a RIGHT JOIN __t1 b ON a.n = b.n AND a.m > 2 AND b.m > 3 WHERE b.id < 5

SELECT a.id FROM t a FULL JOIN u b ON a.n = b.n AND a.m > 2 WHERE a.id < 5;
rows __t0 = t(id, n, m): id in {-..4}
  by id; left a.m > 2
rows __t1 = u(n): true
  by None
  then SELECT a.id FROM __t0 a FULL JOIN __t1 b ON a.n = b.n AND a.m > 2 WHERE a.id < 5

SELECT a.id FROM t a SEMI JOIN u b ON a.n = b.n AND a.m > 2 AND b.m > 3;
rows __t0 = t(id, n, m): m in {3..-}
  by None
rows __t1 = u(n, m): m in {4..-}
  by None
  then SELECT a.id FROM __t0 a SEMI JOIN __t1 b ON a.n = b.n AND a.m > 2 AND b.m > 3

SELECT a.id FROM t a ANTI JOIN u b ON a.n = b.n AND a.m > 2 AND b.m > 3;
rows __t0 = t(id, n, m): true
  by None; left a.m > 2
rows __t1 = u(n, m): m in {4..-}
  by None
  then SELECT a.id FROM __t0 a ANTI JOIN __t1 b ON a.n = b.n AND a.m > 2 AND b.m > 3

SELECT a.id, b.id FROM t a ASOF JOIN u b ON a.day >= b.day WHERE a.id < 5 AND b.id < 5;
rows __t0 = t(id, day): id in {-..4}
  by id
rows __t1 = u(id, day): true
  by None; left b.id < 5
  then SELECT a.id, b.id FROM __t0 a ASOF JOIN __t1 b ON a.day >= b.day WHERE a.id < 5 AND b.id < 5

SELECT a.id FROM t a NATURAL JOIN u b WHERE a.id < 5 AND n < 3;
rows __t0 = t(id, n, price, f, ok, day, moment, wood, name, m): id in {-..4}
  by id
rows __t1 = u(id, n, price, f, ok, day, moment, wood, name, m): true
  by None
  then SELECT a.id FROM __t0 a NATURAL JOIN __t1 b WHERE a.id < 5 AND n < 3

SELECT a.price FROM t a JOIN u b USING (id) WHERE id < 5 AND a.n < 3;
rows __t0 = t(id, n, price): n in {-..2}
  by n
rows __t1 = u(id): true
  by None
  then SELECT a.price FROM __t0 a JOIN __t1 b USING (id) WHERE id < 5 AND a.n < 3

SELECT a.id FROM t a, u b WHERE (a.n = 1 AND b.n = 2 AND a.id = b.id) OR (a.n = 3 AND b.n = 4 AND a.id = b.id);
rows __t0 = t(id, n): (n in {1} or n in {3})
  by n
rows __t1 = u(id, n): (n in {2} or n in {4})
  by None
  then SELECT a.id FROM __t0 a, __t1 b WHERE (a.n = 1 AND b.n = 2 AND a.id = b.id) OR (a.n = 3 AND b.n = 4 AND a.id = b.id)

SELECT id FROM t WHERE n IN (SELECT n FROM u WHERE day > '2020-01-05') AND id < 10;
rows __t0 = t(id, n): id in {-..9}
  by id; left n IN (SELECT n FROM u WHERE day > '2020-01-05')
rows __t1 = u(n, day): day in {2020-01-06..-}
  by None
  then SELECT id FROM __t0 AS t WHERE n IN (SELECT n FROM __t1 AS u WHERE day > '2020-01-05') AND id < 10

SELECT id FROM t WHERE EXISTS (SELECT * FROM u WHERE u.id = t.id AND u.n > 5);
rows __t0 = t(id): true
  by None
rows __t1 = u(id, n, price, f, ok, day, moment, wood, name, m): n in {6..-}
  by None
  then SELECT id FROM __t0 AS t WHERE EXISTS (SELECT * FROM __t1 AS u WHERE u.id = t.id AND u.n > 5)

WITH s AS (SELECT id, n FROM t WHERE n > 5) SELECT s.id FROM s JOIN u ON s.id = u.id WHERE s.id < 3;
rows __t0 = t(id, n): n in {6..-}
  by n
rows __t1 = u(id): true
  by None
  then WITH s AS (SELECT id, n FROM __t0 AS t WHERE n > 5) SELECT s.id FROM s JOIN __t1 AS u ON s.id = u.id WHERE s.id < 3

WITH t AS (SELECT id FROM u WHERE id < 3) SELECT id FROM t;
rows __t0 = u(id): id in {-..2}
  by None
  then WITH t AS (SELECT id FROM __t0 AS u WHERE id < 3) SELECT id FROM t

SELECT id FROM t WHERE n = 1 UNION ALL SELECT id FROM u WHERE n = 2;
rows __t0 = t(id, n): n in {1}
  by n
rows __t1 = u(id, n): n in {2}
  by None
  then SELECT id FROM __t0 AS t WHERE n = 1 UNION ALL SELECT id FROM __t1 AS u WHERE n = 2

SELECT x.id FROM (SELECT id, n FROM t WHERE n < 5) x WHERE x.n > 2;
rows __t0 = t(id, n): n in {-..4}
  by n
  then SELECT x.id FROM (SELECT id, n FROM __t0 AS t WHERE n < 5) x WHERE x.n > 2

SELECT id, row_number() OVER (ORDER BY n) FROM t WHERE wood = 'oak';
rows __t0 = t(id, n, wood): wood in {oak}
  by None
  then SELECT id, row_number() OVER (ORDER BY n) FROM __t0 AS t WHERE wood = 'oak'

SELECT a.id FROM t a, t b WHERE a.id = b.id;
rows __t0 = t(id): true
  by None
  then SELECT a.id FROM __t0 a, __t0 b WHERE a.id = b.id

SELECT t FROM t WHERE id = 3;
rows __t0 = t(id, n, price, f, ok, day, moment, wood, name, m): id in {3}
  by id
  then SELECT t FROM __t0 AS t WHERE id = 3

SELECT a.* EXCLUDE (n), b.id FROM t a JOIN u b ON a.id = b.id;
rows __t0 = t(id, n, price, f, ok, day, moment, wood, name, m): true
  by None
rows __t1 = u(id, n): true
  by None
  then SELECT a.* EXCLUDE (n), b.id FROM __t0 a JOIN __t1 b ON a.id = b.id

SELECT id FROM t x(id2, n) WHERE n < 3;
rows __t0 = t(id, n, price, f, ok, day, moment, wood, name, m): true
  by None
  then SELECT id FROM __t0 x(id2, n) WHERE n < 3

SELECT id FROM t WHERE day < current_date AND id < 5;
rows __t0 = t(id, day): id in {-..4}
  by id; left day < CURRENT_DATE
  then SELECT id FROM __t0 AS t WHERE day < current_date AND id < 5

SELECT a.id FROM (t a JOIN u b ON a.id = b.id) WHERE a.n < 3;
rows __t0 = t(id, n): true
  by None; left a.n < 3
rows __t1 = u(id): true
  by None
  then SELECT a.id FROM (__t0 a JOIN __t1 b ON a.id = b.id) WHERE a.n < 3

VALUES (1, 2);
then VALUES (1, 2)
