/* The life of a database under a lying provider: versions, enclaves' memory, hand-over, rekey, restore.
 *
 * docs/verification.md explains what this stands for. Every check of the protocol is an #ifndef NO_...: with all of them
 * no assertion fails, and without any one of them some assertion does (verify/lifecycle.py).
 *
 * A version is a place in the arrays below. Its place stands for its hash: nobody makes another one of the same hash, so
 * `prev` cannot be forged, and a place never changes. Ghost variables, which nobody in the model looks at, say who
 * really made a version. All choices of the provider are nondeterministic: it shows any version to any enclave, kills,
 * puts enclaves in touch, and forges what it can seal and sign.
 */

#define PLACES 5
#define NONE 15
#define HIGH 14   /* a number above all others */
#define ALLOTMENT 2

/* Keys that sign: the owner's first and second, the provider's, the analyst's, the provider's under a grant that the
 * provider has written itself. */
#define K0 0
#define K1 1
#define P 2
#define A 3
#define P_GRANTED 4

/* Data keys. */
#define D0 0
#define D1 1
#define DP 2

/* Chains of ownership, as a version states them. The database's id is a hash of K0; the provider's own database has a
 * hash of P. */
#define OWNER 0          /* K0 */
#define REKEYED 1        /* K0, then K1: signed by both */
#define OTHER_FIRST 2    /* P, under the victim's id */
#define TAKEN 3          /* K0, then P: signed by P alone */
#define GIVEN 4          /* the provider's database: P, then K0: signed by P alone */

/* Who really made a version. */
#define REAL 0      /* the owner, or the analyst within its grant */
#define FORGED 1
#define STOLEN 2    /* made with a copy of K0 that is from before the rekey */

byte n;                                    /* how many versions there are */
byte num[PLACES], prev[PLACES], chain[PLACES], dkey[PLACES], sign[PLACES], used[PLACES], made[PLACES];
bit revoked[PLACES], restores[PLACES], rekeys[PLACES];

byte mem[2];                               /* what each enclave remembers of the victim's database */
bit knew[2];                               /* ghost: since it started, it has known that the analyst is revoked */

byte oa, ha, aa;                           /* anchors: owner, honest reader, analyst */
byte spent;                                /* what the analyst's own ledger has */
byte key;                                  /* the owner's key and data key in force: 0 or 1 */
byte session, session_version;             /* of the analyst: at which enclave, on which version */
bit pending;                               /* the analyst has paid, and noise is not drawn yet */
byte released;                             /* ghost: how often noise was drawn for the analyst */
bit forged, crashed[2], restored;

hidden byte e, w, x, y, z, most, ok, anc;   /* within a step */

/* --- checks ------------------------------------------------------------------------------------------- */

/* A version by itself, as clients and enclaves both check it. */
inline valid(v)
{
	ok = 1;
#ifndef NO_ID
	if :: chain[v] == OTHER_FIRST -> ok = 0 :: else fi;
#endif
#ifndef NO_OLD_SIGNATURE
	if :: chain[v] == TAKEN -> ok = 0 :: else fi;
#endif
#ifndef NO_NEW_SIGNATURE
	if :: chain[v] == GIVEN -> ok = 0 :: else fi;
#endif
#ifndef NO_DATA_KEY_HASH
	if
	:: chain[v] == OWNER && dkey[v] != D0 -> ok = 0
	:: chain[v] == REKEYED && dkey[v] != D1 -> ok = 0
	:: else
	fi;
#endif
	if
	:: rekeys[v]                       /* authenticated by the statements above */
	:: !rekeys[v] && sign[v] == K0 && chain[v] == OWNER
	:: !rekeys[v] && sign[v] == K1 && chain[v] == REKEYED
	:: !rekeys[v] && sign[v] == A && (chain[v] == OWNER || chain[v] == REKEYED) ->
#ifndef NO_RESTORE_BY_OWNER
		if :: restores[v] -> ok = 0 :: else fi
#else
		skip
#endif
	:: !rekeys[v] && sign[v] == P_GRANTED ->
#ifndef NO_GRANT_SIGNATURE
		ok = 0
#else
		skip
#endif
	:: !rekeys[v] && sign[v] == P && (chain[v] == OTHER_FIRST || chain[v] == TAKEN || chain[v] == GIVEN)
	:: else ->
#ifndef NO_VERSION_SIGNATURE
		ok = 0
#else
		skip
#endif
	fi
}

#ifndef NO_RESTORE_NUMBER
#define ABOVE(v, a) (num[v] > num[a])
#else
#define ABOVE(v, a) true
#endif

/* ok: a version follows from a remembered one, by descent or by a restore. */
inline follows(v, a)
{
	ok = (a == NONE);
	x = v;
	do
	:: ok || x == NONE -> break
	:: else ->
		if
		:: x == a -> ok = 1
		:: x != a && restores[x] && ABOVE(x, a) -> ok = 1
		:: else -> x = prev[x]
		fi
	od;
#ifndef NO_OWNER_ON_RECORD
	if :: a != NONE && chain[a] == REKEYED && chain[v] != REKEYED -> ok = 0 :: else fi;
#endif
	x = 0
}

/* An enclave accepts a version in place of what it remembers; it also sees the grants. */
inline accepts(v, a)
{
	valid(v);
	if
	:: ok ->
#ifndef NO_MEMORY
		follows(v, a);
#endif
#ifndef NO_USE_KEPT
		if :: ok && a != NONE && (used[v] < used[a] || revoked[v] < revoked[a]) -> ok = 0 :: else fi;
#endif
		skip
	:: else
	fi
}

/* A client accepts a version that an enclave has opened for it. */
inline client_accepts(v, a)
{
	valid(v);
	if
	:: ok ->
#ifndef NO_ANCHOR
		follows(v, a);
#endif
		skip
	:: else
	fi
}

/* --- what must hold ----------------------------------------------------------------------------------- */

/* Ghost. anc: a version is another one, or an ancestor of it. */
inline ancestor(r, a)
{
	y = a;
	anc = 0;
	do
	:: y == NONE -> break
	:: y == r -> anc = 1; break
	:: else -> y = prev[y]
	od;
	y = 0
}

/* Nobody who has seen `a` goes on to `v` behind it, unless a restore that the owner signed and that `a` does not know
 * already lies in between. */
inline never_back(v, a)
{
	ok = (a == NONE);
	x = v;
	do
	:: ok || x == NONE -> break
	:: else ->
		if
		:: x == a -> ok = 1
		:: x != a && restores[x] && (sign[x] == K0 || sign[x] == K1) ->
			ancestor(x, a);
			if :: !anc -> ok = 1 :: else -> x = prev[x] fi
		:: else -> x = prev[x]
		fi
	od;
	x = 0;
	assert(ok)  /* NEVER BACK */
}

/* What is accepted comes from the owner's chain, under the owner's data key. Who never saw the rekey cannot tell a copy
 * of the old key from the owner. */
inline from_the_owner(v, a)
{
	assert(made[v] != FORGED);  /* FROM THE OWNER */
	assert(dkey[v] != DP);      /* NOT UNDER THE PROVIDER'S KEY */
	assert(made[v] != STOLEN || a == NONE || chain[a] == OWNER)  /* NOT BY AN OLD KEY */
}

inline remember(en, v)
{
	from_the_owner(v, mem[en]);
	never_back(v, mem[en]);
	if
	:: mem[en] != NONE && made[v] == REAL && made[mem[en]] == REAL ->
		assert(used[v] >= used[mem[en]]);      /* USE NEVER SHRINKS */
		assert(revoked[v] >= revoked[mem[en]]) /* REVOCATIONS STAY */
	:: else
	fi;
	mem[en] = v;
	if :: made[v] == REAL && revoked[v] -> knew[en] = 1 :: else fi
}

inline fetch_answer(en)
{
	assert(!knew[en])  /* NOTHING FOR THE REVOKED */
}

#ifndef NO_FOLLOWING
#define IS_NEWEST (mem[session] == session_version)
#else
#define IS_NEWEST true
#endif

/* --- making versions ---------------------------------------------------------------------------------- */

inline make(p, number, its_chain, its_key, signer, its_use, its_revoked, who)
{
	num[n] = number; prev[n] = p; chain[n] = its_chain; dkey[n] = its_key; sign[n] = signer;
	used[n] = its_use; revoked[n] = its_revoked; made[n] = who;
	n = n + 1
}

inline some_enclave(en) { if :: en = 0 :: en = 1 fi }

inline some_version(v) { if :: v = 0 :: n > 1 -> v = 1 :: n > 2 -> v = 2 :: n > 3 -> v = 3 :: n > 4 -> v = 4 fi }

#ifndef LIVENESS

init {
	atomic {
		/* The owner has created the database and granted the analyst a right to load. No enclave knows it yet. */
		make(NONE, 1, OWNER, D0, K0, 0, 0, REAL);
		mem[0] = NONE; mem[1] = NONE; session = NONE
	}
	do
	/* The owner opens the database at an enclave that is shown some version, and brings its data key along. */
	:: atomic {
		some_enclave(e); some_version(w);
		if
		:: dkey[w] == key -> d_step {
			printf("the owner opens version %d at enclave %d\n", w, e);
			accepts(w, mem[e]);
			if
			:: ok ->
				client_accepts(w, oa);
				if
				:: ok -> remember(e, w); from_the_owner(w, oa); never_back(w, oa); oa = w
				:: else
				fi
			:: else
			fi;
			e = 0; w = 0
		}
		:: else
		fi
	}
	/* Anybody else who brings a data key that opens the version: the provider as another tenant. */
	:: atomic {
		some_enclave(e); some_version(w);
		if
		:: dkey[w] != D1 -> d_step {
			printf("the provider unlocks version %d at enclave %d\n", w, e);
			accepts(w, mem[e]);
			if :: ok -> remember(e, w) :: else fi;
			e = 0; w = 0
		}
		:: else
		fi
	}
	/* The honest reader opens it at an enclave that knows the data key. */
	:: atomic {
		some_enclave(e); some_version(w);
		if
		:: mem[e] != NONE && dkey[w] == dkey[mem[e]] && w != ha -> d_step {
			printf("the reader opens version %d at enclave %d\n", w, e);
			accepts(w, mem[e]);
			if
			:: ok ->
				remember(e, w);
				client_accepts(w, ha);
				if
				:: ok -> from_the_owner(w, ha); never_back(w, ha); ha = w
				:: else
				fi
			:: else
			fi;
			e = 0; w = 0
		}
		:: else
		fi
	}
	/* The analyst opens it: a session on that version. */
	:: atomic {
		some_enclave(e); some_version(w);
		if
		:: mem[e] != NONE && dkey[w] == dkey[mem[e]] && !(session == e && session_version == w) -> d_step {
			printf("the analyst opens version %d at enclave %d\n", w, e);
			accepts(w, mem[e]);
			if
			:: ok && !revoked[w] ->
				remember(e, w);
				fetch_answer(e);
#ifndef NO_OWN_RECORD
				client_accepts(w, aa);
#endif
				if
				:: ok -> aa = w; session = e; session_version = w; pending = 0
				:: else
				fi
			:: else
			fi;
			e = 0; w = 0
		}
		:: else
		fi
	}
	/* It asks on, in the session that it has. */
	:: atomic {
		true;
		if
		:: session != NONE && mem[session] != NONE -> d_step {
			if
			:: !revoked[session_version] && IS_NEWEST ->
				printf("the analyst asks enclave %d, in a session on version %d\n", session, session_version);
				fetch_answer(session)
			:: else
			fi
		}
		:: else
		fi
	}
	/* It loads: the charge is committed in a version of its own, and noise is drawn after that. */
	:: atomic {
		true;
		if
		:: session != NONE && mem[session] == session_version && !revoked[session_version] && !pending && n < PLACES -> d_step {
			printf("the analyst begins a load at enclave %d\n", session);
			most = used[session_version];
#ifndef NO_OWN_RECORD
			if :: spent > most -> most = spent :: else fi;
#endif
			if
			:: most < ALLOTMENT ->
#ifndef NO_CHARGE_FIRST
				make(session_version, num[session_version] + 1, chain[session_version], dkey[session_version], A,
				     most + 1, 0, REAL);
				remember(session, n - 1);
				session_version = n - 1; aa = n - 1; spent = most + 1;
#endif
				pending = 1
			:: else
			fi;
			most = 0
		}
		:: else
		fi
	}
	:: atomic {
		true;
		if
		:: pending -> d_step {
			printf("noise is drawn\n");
			released = released + 1;
			pending = 0;
			x = 0; most = 0;
			do
			:: x < n ->
				if :: made[x] == REAL && used[x] > most -> most = used[x] :: else fi;
				x = x + 1
			:: else -> break
			od;
			x = 0;
			assert(released <= most);      /* CHARGED BEFORE DRAWN */
			assert(released <= ALLOTMENT); /* NO MORE THAN THE ALLOTMENT */
			most = 0
		}
		:: else
		fi
	}
#ifdef NO_CHARGE_FIRST
	:: atomic {
		true;
		if
		:: session != NONE && mem[session] == session_version && n < PLACES && released > 0 && used[session_version] < released -> d_step {
			make(session_version, num[session_version] + 1, chain[session_version], dkey[session_version], A,
			     released, 0, REAL);
			remember(session, n - 1);
			session_version = n - 1; aa = n - 1; spent = released
		}
		:: else
		fi
	}
#endif
	/* The owner changes something at an enclave where it has the newest version open. */
	:: atomic {
		some_enclave(e);
		if
		:: mem[e] == oa && !revoked[oa] && n < PLACES -> d_step {
			printf("the owner revokes at enclave %d: version %d\n", e, n);
			make(oa, num[oa] + 1, chain[oa], dkey[oa], key, used[oa], 1, REAL);
			oa = n - 1;
			remember(e, oa);
			e = 0
		}
		:: else
		fi
	}
	:: atomic {
		some_enclave(e);
		if
		:: mem[e] == oa && key == 0 && n < PLACES -> d_step {
			printf("the owner rekeys at enclave %d: version %d\n", e, n);
			key = 1;
			rekeys[n] = 1;
			make(oa, num[oa] + 1, REKEYED, D1, K1, used[oa], revoked[oa], REAL);
			oa = n - 1;
			remember(e, oa);
			e = 0
		}
		:: else
		fi
	}
	/* Somebody declares an older version the newest. It becomes a version of its own, above everything seen, and takes
	 * along what the owner and this enclave know of grants. */
	:: atomic {
		some_enclave(e); some_version(w); z = key;
#ifdef NO_RESTORE_BY_OWNER
		if :: session == e -> z = A :: skip fi;
#endif
		if
		:: !restored && n < PLACES && dkey[w] == key && (mem[e] == NONE || dkey[mem[e]] == key) -> d_step {
			valid(w);
			if
			:: ok ->
				printf("version %d is restored at enclave %d: version %d\n", w, e, n);
				restored = 1;
				restores[n] = 1;
				most = num[w];
				if :: num[oa] > most -> most = num[oa] :: else fi;
				if :: mem[e] != NONE && num[mem[e]] > most -> most = num[mem[e]] :: else fi;
				x = used[w]; ok = revoked[w];
#ifndef NO_CARRYING
				if :: used[oa] > x -> x = used[oa] :: else fi;
				if :: mem[e] != NONE && used[mem[e]] > x -> x = used[mem[e]] :: else fi;
				if :: revoked[oa] || (mem[e] != NONE && revoked[mem[e]]) -> ok = 1 :: else fi;
#endif
				make(w, most + 1, chain[w], dkey[w], z, x, ok, REAL);
				if :: z == A :: else -> oa = n - 1 fi;
				remember(e, n - 1);
				most = 0; x = 0
			:: else
			fi;
			e = 0; w = 0; z = 0
		}
		:: else
		fi
	}
	/* The provider kills an enclave: another takes its place, and remembers nothing. */
	:: atomic {
		some_enclave(e);
		if
		:: !crashed[e] && mem[e] != NONE -> d_step {
			printf("the provider kills enclave %d\n", e);
			crashed[e] = 1;
			mem[e] = NONE; knew[e] = 0;
			if :: session == e -> session = NONE; session_version = 0; pending = 0 :: else fi;
			e = 0
		}
		:: else
		fi
	}
	/* One enclave hands over to the other what it knows. */
	:: atomic {
		some_enclave(e);
		if
		:: mem[e] != NONE && mem[e] != mem[1 - e] -> d_step {
			printf("enclave %d hands over version %d\n", e, mem[e]);
			ok = 1;
#ifndef NO_ADOPTION_CHECK
			accepts(mem[e], mem[1 - e]);
#endif
			if :: ok -> remember(1 - e, mem[e]) :: else fi;
			e = 0
		}
		:: else
		fi
	}
#ifdef NO_POLICY
	/* A peer that the owner's policy does not admit asks for it, and gets it. */
	:: atomic {
		mem[0] != NONE && dkey[mem[0]] != DP;
		assert(false)  /* NO KEY FOR A PEER WITHOUT LEAVE */
	}
#endif
	/* The provider forges a version and, as another tenant, shows it to an enclave with its data key. What nobody accepts
	 * leaves no trace. It can seal under DP, and under D0, which has leaked from a machine that was broken into. It can
	 * sign with its own keys, with that of an analyst who is in league with it, and, after the rekey, with a copy of K0. */
	:: atomic {
		true;
		if
		:: n < PLACES && !forged ->
			some_enclave(e); some_version(w);
			if
			:: make(w, num[w] + 1, chain[w], D0, P, 0, 0, FORGED)
			:: make(w, num[w] + 1, chain[w], D0, P_GRANTED, 0, 0, FORGED)
			:: restores[n] = 1; make(w, HIGH, chain[w], D0, P, 0, 0, FORGED)
			:: make(w, num[w] + 1, chain[w], DP, A, 0, 0, FORGED)
			:: make(NONE, 1, OTHER_FIRST, DP, P, 0, 0, FORGED)
			:: make(w, num[w] + 1, OTHER_FIRST, DP, P, 0, 0, FORGED)
			:: rekeys[n] = 1; make(w, num[w] + 1, TAKEN, DP, P, 0, 0, FORGED)
			:: rekeys[n] = 1; make(NONE, 2, GIVEN, DP, P, 0, 0, FORGED)
			:: key == 1 -> rekeys[n] = 1; make(w, num[w] + 1, REKEYED, DP, P, 0, 0, FORGED)
			:: key == 1 -> make(w, num[w] + 1, OWNER, D0, K0, 0, 0, STOLEN)
			:: key == 1 -> restores[n] = 1; make(w, HIGH, OWNER, D0, K0, 0, 0, STOLEN)
			fi;
			d_step {
				w = n - 1;
				printf("the provider forges version %d after %d, number %d: chain %d, data key %d, signer %d\n",
				       w, prev[w], num[w], chain[w], dkey[w], sign[w]);
				if
				:: chain[w] == GIVEN ->
					/* Its own database it can always unlock. A guest, who knows K0 and no version, asks for the id that
					 * the provider names. */
					valid(w);
					if :: ok -> from_the_owner(w, NONE) :: else fi;
					ok = 0
				:: else -> accepts(w, mem[e])
				fi;
				if
				:: ok -> remember(e, w); forged = 1
				:: else ->
					n = w;
					num[w] = 0; prev[w] = 0; chain[w] = 0; dkey[w] = 0; sign[w] = 0; used[w] = 0; revoked[w] = 0;
					made[w] = 0; restores[w] = 0; rekeys[w] = 0
				fi;
				e = 0; w = 0
			}
		:: else
		fi
	}
	od
}

#else

/* Who may load renews the lease for ever, and commits whenever she can; the owner wants to revoke. Nobody else matters:
 * the provider could of course pass nothing on at all. */
#define HEADS 4
byte lease, head, draft_a, draft_o;
bit gone;

active proctype loader()
{
	do
	:: atomic { !gone && lease == 0 -> lease = A }
	:: lease == A && !gone ->
		draft_a = head;
		atomic {
			if :: lease == A && draft_a == head && !gone -> head = (head + 1) % HEADS :: else fi
		}
	od
}

active proctype owner()
{
	do
	:: gone -> break
	:: else ->
#ifndef NO_PREEMPTION
		lease = K1;
#else
		atomic { lease == 0 -> lease = K1 };
#endif
		draft_o = head;
		atomic { if :: draft_o == head -> gone = 1; lease = 0 :: else fi }
	od
}

ltl revocation { <> gone }

#endif
