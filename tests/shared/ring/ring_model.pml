/* The ring's protocol (docs/ring-layout.md): 2 producers, 1 consumer, 2 slots, 3 tickets, and at
 * most one fault. spin explores every interleaving of the atomic operations; ring_model_test.sh
 * runs it.
 *
 * Each step that accesses shared variables is one atomic operation of the code; the comment at its
 * end names the function (shared/ring/mapped_ring.h). atomic and d_step only add what the function
 * does with the value, and variables of the checks. Operations are sequentially consistent: weaker
 * memory orders are outside of this model, and so are the copies of words that the creator keeps.
 *
 * Checked: the consumer gets tickets 0, 1 and 2 once each, in order, filled by the last process that
 * claimed them; no process claims a slot that the consumer reads; only tickets of the dead are
 * requeued; every process ends (after a lost wake-up or lost ticket, one does not). FUTEX_WAIT has no
 * timeout, unless a producer is removed while it runs. Each MUTATION removes one state check or notification,
 * and spin must find an error with the fault that is named first.
 *
 * Not among the mutations, because the protocol holds without them: the consumer's CAS operations (they
 * could be stores) and its check of the turn of a ready slot, which detect faulty producers; the check of
 * the own row before a claim, which ends a removed producer that finds nothing to claim; the comparison
 * with next_ticket in publish and the number of waiters in notify, which save system calls. */

c_decl { \#include <stdlib.h> }

#define SLOTS 2
#ifndef END
#define END 3
#endif

byte mutation; /* from the environment variable MUTATION */
#define MUTATION(number) (mutation == number)

#define CLAIM_WHILE_CLOSED 1         /* CLOSE; poll_ticket: closed */
#define KEEP_CLAIM_WHEN_REMOVED 2    /* REMOVE; poll_ticket: alive, after the claim */
#define CLAIM_PAST_END 3             /* NO_FAULT; poll_ticket: end_ticket */
#define CLAIM_ANY_PHASE 4            /* NO_FAULT; poll_ticket: free or requeued */
#define CLAIM_ANY_TURN 5             /* NO_FAULT; poll_ticket: turn of the slot word */
#define CLAIM_NO_REQUEUED 6          /* ABANDON; poll_ticket: requeued */
#define CLAIM_WITHOUT_COMPARING 7    /* NO_FAULT; poll_ticket: expected word of the CAS */
#define END_BEFORE_PUBLISHED 8       /* KILL; poll_ticket: all remaining tickets are ready */
#define PUBLISH_WITHOUT_COMPARING 9  /* REMOVE; publish: expected word of the CAS */
#define PUBLISH_SILENTLY 10          /* NO_FAULT; publish: notification */
#define NOTIFY_BEFORE_PUBLISHING 11  /* NO_FAULT; publish: the change precedes the notification */
#define ABANDON_WITHOUT_COMPARING 12 /* ABANDON; abandon: expected word of the CAS */
#define ABANDON_SILENTLY 13          /* ABANDON; abandon: notification */
#define POP_WHILE_CLOSED 14          /* CLOSE; poll_batch: closed */
#define POP_PAST_END 15              /* NO_FAULT; poll_batch: end_ticket */
#define POP_ANY_PHASE 16             /* NO_FAULT; poll_batch: ready */
#define POP_KEEPS_TICKET 17          /* NO_FAULT; poll_batch: store of next_ticket */
#define RELEASE_SAME_TURN 18         /* NO_FAULT; release: turn of the next ticket */
#define RELEASE_SILENTLY 19          /* NO_FAULT; release: notification */
#define RELEASE_LAST_TO_ONE 20       /* NO_FAULT; release: end of data is for all producers */
#define REQUEUE_REPEATEDLY 21        /* KILL; requeue: the row is alive */
#define REQUEUE_ANY_OWNER 22         /* KILL; requeue: owner and generation of the slot word */
#define REQUEUE_WITHOUT_RETIRING 23  /* REMOVE; requeue: the row is retired before the search for claims */
#define REQUEUE_WITHOUT_PRODUCERS 24 /* KILL; requeue: notification of the producers */
#define REQUEUE_WITHOUT_CONSUMER 25  /* KILL; requeue: notification of the consumer */
#define SUBTRACT_TWICE 26            /* KILL; requeue: subtracts the row's waiting threads once */
#define REUSE_GENERATION 27          /* KILL; add: next generation */
#define CLOSE_FOR_ONE_PRODUCER 28    /* CLOSE; close: notifies all producers */
#define CLOSE_WITHOUT_PRODUCERS 29   /* CLOSE; close: notification of the producers */
#define CLOSE_WITHOUT_CONSUMER 30    /* CLOSE; close: notification of the consumer */
#define NOTIFY_SAME_EPOCH 31         /* NO_FAULT; wake_waiters: new epoch */
#define SLEEP_AT_ANY_EPOCH 32        /* NO_FAULT; sleep: the epoch is unchanged */
#define SLEEP_WITHOUT_POLLING 33     /* NO_FAULT; wait_for: poll between enter and sleep */
#define COUNT_ROW_FIRST 34           /* KILL; wait_for: enter precedes the row's count */

/* ---- Shared memory */

#define FREE 1
#define CLAIMED 2
#define READY 3
#define IN_USE 4
#define REQUEUED 5
/* Slot word: phase, owner, generation, turn. */
#define PLAIN(phase, ticket) ((phase) + ((ticket) / SLOTS) * 128)
#define CLAIMED_BY(row, generation, ticket) \
  (CLAIMED + (row) * 8 + (generation) * 16 + ((ticket) / SLOTS) * 128)
#define PHASE(word) ((word) & 7)
#define IS_IN_TURN(word, ticket) ((word) / 128 == (ticket) / SLOTS)
short slot[SLOTS];
#define SLOT slot[ticket % SLOTS]

#define ROW_FREE(generation) ((generation) * 4)
#define ROW_ALIVE(generation) ((generation) * 4 + 1)
#define ROW_RETIRED(generation) ((generation) * 4 + 2)
byte row[2];
byte row_waiting[2];

byte next_ticket;
bit closed;
#define SLOT_FREED 0
#define BATCH_READY 1
byte waiters[2];

/* Processes: 0 and 1 are producers, 2 is the consumer, 3 replaces a producer that still runs. The
 * consumer waits for BATCH_READY, the others for SLOT_FREED. Instead of the epoch, there is what
 * each process that has loaded it will find. */
#define CONSUMER 2
#define REPLACEMENT 3
#define IDLE 0
#define SAME_EPOCH 1
#define NEW_EPOCH 2
#define ASLEEP 3
byte watch[4];

/* ---- The fault, and variables of the checks */

#define NO_FAULT 0
#define KILL 1    /* producer 0 is killed anywhere, reaped, requeued, and perhaps replaced */
#define REMOVE 2  /* producer 0 is requeued anywhere although it runs, and perhaps keeps a ticket */
#define CLOSE 3   /* the ring is closed anywhere */
#define ABANDON 4 /* a producer abandons a ticket, the same again, and perhaps exits */
byte fault; /* from the environment variable FAULT */
bit killed; /* producer 0 */
bit ended;  /* producer 0 */
bit has_abandoned;
byte holder[SLOTS];  /* process that claimed the slot last … */
bit is_filled[SLOTS]; /* … and has filled it */

/* ---- EventCount */

#define WATCH(process, from, to) watch[process] = (watch[process] == from -> to : watch[process])

inline change_epoch(event) {
  d_step { /* EventCount::wake_waiters: fetch_add epoch */
    if
    :: MUTATION(NOTIFY_SAME_EPOCH)
    :: !MUTATION(NOTIFY_SAME_EPOCH) && event == BATCH_READY -> WATCH(CONSUMER, SAME_EPOCH, NEW_EPOCH)
    :: !MUTATION(NOTIFY_SAME_EPOCH) && event == SLOT_FREED ->
       WATCH(0, SAME_EPOCH, NEW_EPOCH);
       WATCH(1, SAME_EPOCH, NEW_EPOCH);
       WATCH(REPLACEMENT, SAME_EPOCH, NEW_EPOCH)
    fi
  }
}

inline wake(event, is_one) {
  atomic { /* EventCount::wake_waiters: FUTEX_WAKE */
    if
    :: event == BATCH_READY -> WATCH(CONSUMER, ASLEEP, IDLE)
    :: event == SLOT_FREED && !(is_one) ->
       WATCH(0, ASLEEP, IDLE);
       WATCH(1, ASLEEP, IDLE);
       WATCH(REPLACEMENT, ASLEEP, IDLE)
    :: event == SLOT_FREED && is_one && watch[0] == ASLEEP -> watch[0] = IDLE
    :: event == SLOT_FREED && is_one && watch[1] == ASLEEP -> watch[1] = IDLE
    :: event == SLOT_FREED && is_one && watch[REPLACEMENT] == ASLEEP -> watch[REPLACEMENT] = IDLE
    :: else
    fi
  }
}

inline notify(event, is_one) {
  change_epoch(event);
  if
  :: waiters[event] == 0 /* EventCount::wake_waiters: load waiters */
  :: waiters[event] > 0 -> wake(event, is_one)
  fi
}

inline sleep() {
  /* EventCount::sleep: FUTEX_WAIT; it returns at the next statement */
  watch[self] = (watch[self] == SAME_EPOCH || MUTATION(SLEEP_AT_ANY_EPOCH) -> ASLEEP : IDLE)
}

/* ---- Producer */

#define NOTHING 0
#define FOUND 1
#define OVER 2 /* closed, end of data, or removed */

#define IS_CLAIMABLE(word, ticket) \
  (word == PLAIN(FREE, ticket) || (word == PLAIN(REQUEUED, ticket) && !MUTATION(CLAIM_NO_REQUEUED)) || \
   (MUTATION(CLAIM_ANY_PHASE) && IS_IN_TURN(word, ticket)) || \
   (MUTATION(CLAIM_ANY_TURN) && (PHASE(word) == FREE || PHASE(word) == REQUEUED)))

/* Loads of variables that the fault does not change need no separate step. */
#define CAN_LOSE_RIGHTS (fault == CLOSE || (fault == REMOVE && self == 0))
#define IS_ROW_SHARED ((fault == KILL || fault == REMOVE) && self == 0)

inline check_rights() {
  if /* MappedRing::poll_ticket: load closed */
  :: closed && !MUTATION(CLAIM_WHILE_CLOSED) -> found = OVER; goto polled
  :: else
  fi;
  if /* MappedRing::poll_ticket: alive */
  :: row[me] != ROW_ALIVE(generation) -> found = OVER; goto polled
  :: else
  fi
}

inline load_range() {
  ticket = next_ticket; /* MappedRing::poll_ticket: load next_ticket */
  limit = (ticket + SLOTS < END || MUTATION(CLAIM_PAST_END) -> ticket + SLOTS : END);
  all_filled = (limit == END);
  if
  :: ticket >= limit -> found = (all_filled -> OVER : NOTHING); goto polled
  :: else
  fi
}

inline check_claim() {
  if /* MappedRing::poll_ticket: alive, again */
  :: row[me] == ROW_ALIVE(generation) || MUTATION(KEEP_CLAIM_WHEN_REMOVED) -> found = FOUND; goto polled
  :: else -> found = OVER; goto abandon
  fi
}

inline count_waiting() {
  row_waiting[me] = row_waiting[me] + 1 - MUTATION(COUNT_ROW_FIRST); /* MappedRing::wait_for: fetch_add waiting */
  is_waiting = 1;
  if :: MUTATION(SLEEP_WITHOUT_POLLING) -> goto polled :: else -> goto poll fi
}

proctype Producer(byte self; byte me; byte generation) {
  byte found, ticket, limit;
  short seen;
  bit is_waiting, all_filled, abandons_again;
  {
    skip;
poll:
    if
    :: atomic { CAN_LOSE_RIGHTS -> check_rights() }
       atomic { load_range() }
    :: atomic { !CAN_LOSE_RIGHTS -> check_rights(); load_range() }
    fi;
look:
    atomic { /* MappedRing::poll_ticket: load word */
      seen = SLOT;
      if :: IS_CLAIMABLE(seen, ticket) :: else -> goto next fi
    }
compare:
    atomic { /* MappedRing::poll_ticket: CAS */
      if
      :: SLOT == seen || MUTATION(CLAIM_WITHOUT_COMPARING) ->
         assert(ticket < END && PHASE(SLOT) != IN_USE);
         SLOT = CLAIMED_BY(me, generation, ticket);
         holder[ticket % SLOTS] = self;
         is_filled[ticket % SLOTS] = 0;
         if :: CAN_LOSE_RIGHTS :: else -> check_claim() fi
      :: else ->
         seen = SLOT;
         if :: IS_CLAIMABLE(seen, ticket) -> goto compare :: else -> goto next fi
      fi
    }
    atomic { check_claim() }
next:
    atomic {
      all_filled = all_filled && (seen == PLAIN(READY, ticket) || MUTATION(END_BEFORE_PUBLISHED));
      ticket++;
      if
      :: ticket < limit -> goto look
      :: else -> found = (all_filled -> OVER : NOTHING); goto polled
      fi
    }
polled:
    atomic {
      seen = 0;
      limit = 0;
      all_filled = 0;
      if
      :: found == NOTHING ->
         ticket = 0;
         if :: is_waiting -> goto rest :: else -> goto wait fi
      :: found != NOTHING && is_waiting -> goto rise
      :: found == FOUND && !is_waiting && fault == ABANDON && !has_abandoned ->
         has_abandoned = 1;
         abandons_again = 1;
         goto abandon
      :: found == FOUND && !is_waiting -> goto fill
      :: found == FOUND && !is_waiting && fault == REMOVE && self == 0 -> goto done /* exits, or hangs */
      :: found == OVER && !is_waiting -> goto done
      fi
    }
wait:
    /* MappedRing::wait_for: enter; EventCount::enter: fetch_add */
    if
    :: atomic { MUTATION(COUNT_ROW_FIRST) -> row_waiting[me]++ }
       waiters[SLOT_FREED]++
    :: atomic { !MUTATION(COUNT_ROW_FIRST) -> waiters[SLOT_FREED]++ }
    fi;
    atomic {
      watch[self] = SAME_EPOCH; /* EventCount::enter: load epoch */
      if :: IS_ROW_SHARED :: else -> count_waiting() fi
    }
    atomic { count_waiting() }
rest:
    sleep();                    /* MappedRing::wait_for: sleep */
rise:
    atomic {                    /* MappedRing::wait_for: fetch_sub waiting */
      watch[self] != ASLEEP ->
      watch[self] = IDLE;
      row_waiting[me]--;
      if :: IS_ROW_SHARED :: else -> goto leave fi
    }
leave:
    atomic {                    /* MappedRing::wait_for: leave; EventCount::leave: fetch_sub */
      waiters[SLOT_FREED]--;
      is_waiting = 0;
      if :: found == NOTHING -> goto poll :: else -> goto polled fi
    }
fill:
    if
    :: atomic { MUTATION(NOTIFY_BEFORE_PUBLISHING) -> notify(BATCH_READY, false) }
    :: !MUTATION(NOTIFY_BEFORE_PUBLISHING)
    fi;
    atomic { /* MappedRing::publish: CAS */
      found = NOTHING;
      if
      :: SLOT == CLAIMED_BY(me, generation, ticket) || MUTATION(PUBLISH_WITHOUT_COMPARING) ->
         assert(holder[ticket % SLOTS] == self);
         SLOT = PLAIN(READY, ticket);
         is_filled[ticket % SLOTS] = 1
      :: else -> ticket = 0; goto poll
      fi
    }
    if /* MappedRing::publish: load next_ticket */
    :: atomic { ticket == next_ticket && !MUTATION(PUBLISH_SILENTLY) && !MUTATION(NOTIFY_BEFORE_PUBLISHING) -> ticket = 0 }
       notify(BATCH_READY, false) /* MappedRing::publish: notify */
    :: atomic { else -> ticket = 0 }
    fi;
    goto poll;
abandon:
    if
    :: atomic { /* MappedRing::abandon: CAS */
         SLOT == CLAIMED_BY(me, generation, ticket) || MUTATION(ABANDON_WITHOUT_COMPARING) ->
         SLOT = PLAIN(REQUEUED, ticket)
       }
       if
       :: MUTATION(ABANDON_SILENTLY)
       :: atomic { !MUTATION(ABANDON_SILENTLY) -> notify(SLOT_FREED, false) } /* MappedRing::abandon: notify */
       fi
    :: else
    fi;
    atomic {
      if
      :: abandons_again -> abandons_again = 0; goto abandon
      :: !abandons_again && found == OVER -> goto polled
      :: !abandons_again && found == FOUND -> found = NOTHING; ticket = 0; goto poll
      :: !abandons_again && found == FOUND -> found = OVER; goto polled
      fi
    }
done:
    skip
  } unless { self == 0 && killed };
  d_step {
    watch[self] = IDLE;
    ended = ended || self == 0
  }
}

/* ---- Consumer */

proctype Consumer() {
  byte self = CONSUMER;
  byte found, ticket;
  short seen;
  bit is_waiting;
  byte expected; /* next ticket */
poll:
  atomic { /* MappedRing::poll_batch: load closed */
    if
    :: closed && !MUTATION(POP_WHILE_CLOSED) -> found = OVER; goto polled
    :: else
    fi
  }
  atomic { /* MappedRing::poll_batch: load next_ticket */
    ticket = next_ticket;
    if :: ticket >= END && !MUTATION(POP_PAST_END) -> found = OVER; goto polled :: else fi
  }
  atomic { /* MappedRing::poll_batch: load word */
    seen = SLOT;
    if
    :: seen == PLAIN(READY, ticket) || (MUTATION(POP_ANY_PHASE) && IS_IN_TURN(seen, ticket))
    :: else ->
       /* MappedRing::poll_batch: never an impossible word */
       assert(PHASE(seen) == IN_USE -> seen == PLAIN(IN_USE, ticket - SLOTS) : IS_IN_TURN(seen, ticket));
       found = NOTHING;
       goto polled
    fi
  }
  atomic { /* MappedRing::poll_batch: CAS */
    if
    :: SLOT == seen ->
       assert(ticket == expected && ticket < END);
       assert(fault == REMOVE || is_filled[ticket % SLOTS]);
       SLOT = PLAIN(IN_USE, ticket);
       expected++;
       found = FOUND
    :: else -> found = NOTHING; goto polled
    fi
  }
  /* MappedRing::poll_batch: store next_ticket */
  next_ticket = (MUTATION(POP_KEEPS_TICKET) -> ticket : ticket + 1);
polled:
  atomic {
    seen = 0;
    if
    :: found == NOTHING ->
       ticket = 0;
       if :: is_waiting -> goto rest :: else -> goto wait fi
    :: found != NOTHING && is_waiting -> goto rise
    :: found == FOUND && !is_waiting -> goto release
    :: found == OVER && !is_waiting -> goto done
    fi
  }
wait:
  waiters[BATCH_READY]++;     /* MappedRing::wait_for: enter; EventCount::enter: fetch_add */
  atomic {                    /* EventCount::enter: load epoch */
    watch[self] = SAME_EPOCH;
    is_waiting = 1;
    if :: MUTATION(SLEEP_WITHOUT_POLLING) -> goto polled :: else -> goto poll fi
  }
rest:
  sleep();                    /* MappedRing::wait_for: sleep */
rise:
  atomic {                    /* MappedRing::wait_for: leave; EventCount::leave: fetch_sub */
    watch[self] != ASLEEP ->
    watch[self] = IDLE;
    waiters[BATCH_READY]--;
    is_waiting = 0;
    if :: found == NOTHING -> goto poll :: else -> goto polled fi
  }
release:
  atomic {                    /* MappedRing::release: CAS */
    assert(SLOT == PLAIN(IN_USE, ticket) && (fault == REMOVE || is_filled[ticket % SLOTS]));
    SLOT = PLAIN(FREE, (MUTATION(RELEASE_SAME_TURN) -> ticket : ticket + SLOTS))
  }
  if
  :: MUTATION(RELEASE_SILENTLY)
  :: atomic {                 /* MappedRing::release: notify or notify_one */
       !MUTATION(RELEASE_SILENTLY) ->
       notify(SLOT_FREED, (ticket + SLOTS < END || MUTATION(RELEASE_LAST_TO_ONE)))
     }
  fi;
  atomic { ticket = 0; found = NOTHING; goto poll }
done:
  assert(closed || expected == END)
}

/* ---- Supervisor */

inline requeue(me, generation) {
  if
  :: atomic { /* MappedRing::requeue; ProducerTable::retire: CAS */
       row[me] == ROW_ALIVE(generation) || MUTATION(REQUEUE_REPEATEDLY) ->
       row[me] = (MUTATION(REQUEUE_WITHOUT_RETIRING) -> row[me] : ROW_RETIRED(generation))
     }
     atomic { /* ProducerTable::take_waiting: exchange */
       waiting = row_waiting[me];
       row_waiting[me] = (MUTATION(SUBTRACT_TWICE) -> waiting : 0)
     }
     if
     :: atomic { /* MappedRing::requeue: leave; EventCount::leave: fetch_sub */
          waiting > 0 -> waiters[SLOT_FREED] = waiters[SLOT_FREED] - waiting * (1 + MUTATION(SUBTRACT_TWICE))
        }
     :: waiting == 0
     fi;
     atomic { /* MappedRing::requeue: load next_ticket */
       waiting = 0;
       ticket = next_ticket;
       limit = ticket + SLOTS
     }
     do
     :: atomic { ticket >= limit -> ticket = 0; limit = 0; break }
     :: atomic { /* MappedRing::requeue: load word */
          ticket < limit ->
          seen = SLOT;
          if
          :: seen == CLAIMED_BY(me, generation, ticket) ||
             (MUTATION(REQUEUE_ANY_OWNER) && PHASE(seen) == CLAIMED && IS_IN_TURN(seen, ticket))
          :: else -> seen = 0
          fi
        }
        if
        :: atomic { /* MappedRing::requeue: CAS */
             seen != 0 ->
             assert(fault == REMOVE || SLOT != seen || holder[ticket % SLOTS] == 0);
             SLOT = (SLOT == seen -> PLAIN(REQUEUED, ticket) : SLOT);
             seen = 0;
             ticket++
           }
        :: atomic { seen == 0 -> ticket++ }
        fi
     od;
     row[me] = ROW_FREE(generation); /* MappedRing::requeue: free_row; ProducerTable::free_row: store */
     if
     :: MUTATION(REQUEUE_WITHOUT_PRODUCERS)
     :: atomic { !MUTATION(REQUEUE_WITHOUT_PRODUCERS) -> notify(SLOT_FREED, false) } /* MappedRing::requeue: notify */
     fi;
     if
     :: MUTATION(REQUEUE_WITHOUT_CONSUMER)
     :: atomic { !MUTATION(REQUEUE_WITHOUT_CONSUMER) -> notify(BATCH_READY, false) } /* MappedRing::requeue: notify */
     fi
  :: else
  fi
}

/* Whether a worker process is restarted depends on its exit and the number of crashes. */
inline replace(process) {
  if
  :: row[0] = ROW_RETIRED(2); /* ProducerTable::add: CAS */
     row_waiting[0] = 0;      /* ProducerTable::add: store waiting */
     atomic {                 /* ProducerTable::add: store word */
       row[0] = ROW_ALIVE(2 - MUTATION(REUSE_GENERATION));
       run Producer(process, 0, 2 - MUTATION(REUSE_GENERATION))
     }
     requeue(0, 1)            /* of the former generation: without effect */
  :: true
  fi
}

init {
  short seen;
  byte ticket, limit, waiting;
  atomic {
    c_code {
      const char* text = getenv("MUTATION");
      now.mutation = text ? atoi(text) : 0;
      text = getenv("FAULT");
      now.fault = text ? atoi(text) : 0;
    };
    slot[0] = PLAIN(FREE, 0);
    slot[1] = PLAIN(FREE, 1);
    row[0] = ROW_ALIVE(1);
    row[1] = ROW_ALIVE(1);
    run Producer(0, 0, 1);
    run Producer(1, 1, 1);
    run Consumer()
  }
  if
  :: fault == KILL -> killed = 1; atomic { ended -> killed = 0 }; requeue(0, 1); replace(0)
  :: fault == REMOVE -> requeue(0, 1); replace(REPLACEMENT)
  :: fault == CLOSE ->
     closed = 1; /* MappedRing::close: store closed */
     if
     :: MUTATION(CLOSE_WITHOUT_PRODUCERS)
     :: !MUTATION(CLOSE_WITHOUT_PRODUCERS) -> notify(SLOT_FREED, MUTATION(CLOSE_FOR_ONE_PRODUCER)) /* MappedRing::close: notify */
     fi;
     if
     :: MUTATION(CLOSE_WITHOUT_CONSUMER)
     :: !MUTATION(CLOSE_WITHOUT_CONSUMER) -> notify(BATCH_READY, false) /* MappedRing::close: notify */
     fi
  :: else
  fi
}

/* The timeouts of FUTEX_WAIT. A producer that is removed while it waits is subtracted twice from the
 * waiters, so that others are not woken. */
active proctype Timeout() {
  byte count;
end:
  do
  :: atomic {
       timeout && fault == REMOVE && count < 4 ->
       count++;
       WATCH(0, ASLEEP, IDLE);
       WATCH(1, ASLEEP, IDLE);
       WATCH(REPLACEMENT, ASLEEP, IDLE);
       WATCH(CONSUMER, ASLEEP, IDLE)
     }
  od
}
