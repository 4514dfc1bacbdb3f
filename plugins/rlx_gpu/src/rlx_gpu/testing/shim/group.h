// Runs the groups of a launch on one thread of the processor. Every thread of a group is a fiber: it runs until it waits for the
// others, or is done. Which goes first is drawn anew after every wait, so that what depends on the order shows as other bits; a
// wait that not all reach is a fault and no hang. Shared memory is full of ones when a group starts: NaN in every float.
//
// No header of the standard library: reading those would take longer than compiling a kernel.
#pragma once

#if !defined(__x86_64__) || !defined(__ELF__)
#error "the stand-in runs on x86-64 with ELF files"
#endif

// Saves what a call leaves alone, changes stacks, and restores it: the System V calling convention.
extern "C" void rlx_shim_switch(void** from, void* to);
asm(R"(
.text
.hidden rlx_shim_switch
.globl rlx_shim_switch
rlx_shim_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");

namespace shim {

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 MOST_THREADS = 1024;
constexpr u32 SUBGROUP = 32;
constexpr u32 SLOT_NBYTES = 64;
constexpr u64 UNUSED_NBYTES = 16 << 10;
constexpr u64 CANARY = 0x7a3f5c91e0d2b486ull;

enum State : unsigned char { READY, AT_GROUP, AT_SUBGROUP, DONE };
enum Fault : u32 {
  NONE, GROUP_DIVERGES, SUBGROUP_DIVERGES, NO_SUCH_LANE, STACK_OVERFLOWS, MISALIGNED,
  NOT_SHARED, BAD_DESCRIPTOR, HIDDEN_FACTOR, CHANGED_FACTOR, UNFENCED_SUMS, NOT_AWAITED, WARPGROUP_DIVERGES
};

// What the driver hands over, and what it is told; `LaunchRecord` in driver.py has the same fields.
struct Launch {
  void** cells;  // the arguments, each in memory of its own; after them, room for two more
  char* stacks;
  u64 stack_nbytes;
  char* given;  // memory that groups share besides what the kernel declares
  u64 given_nbytes;
  u32 arguments, groups, group_size, seed;
  u32 fault, fault_group, fault_thread, shared_nbytes;
};

struct Dim { u32 x, y, z; };

// What a language adds to how groups run that are given memory: before one starts, when a thread stops running, and after all.
struct Watch { void (*starts)(); void (*stops)(); void (*ends)(); };

static Watch watch;
static char *shared_begin, *shared_end;  // what a kernel declares
static Dim thread_place, group_place, group_sizes, grid_sizes;
static Launch* launch;
static void (*body)(void**);
static void* scheduler;
static void* stack_tops[MOST_THREADS];
static State states[MOST_THREADS];
static u32 order[MOST_THREADS];
static u32 current;
static u32 random_state;
static unsigned char turns[MOST_THREADS];
alignas(16) static char slots[2][MOST_THREADS][SLOT_NBYTES];

static inline u32 random() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}

static void note(Fault fault) {
  launch->fault = fault;
  launch->fault_group = group_place.x;
  launch->fault_thread = current;
}

static void wait(State state) {
  if (launch->given_nbytes) watch.stops();
  states[current] = state;
  rlx_shim_switch(&stack_tops[current], scheduler);
}

// Ends the launch: nobody goes on.
static void fail(Fault fault) {
  note(fault);
  wait(DONE);
}

static void thread_main() {
  body(launch->cells);
  wait(DONE);
  __builtin_trap();
}

// Words of several bytes are read and written where a GPU can do so at once. The address goes through `asm`, so that the
// compiler does not take its alignment from the type.
static inline void expect_aligned(const void* address, u64 nbytes) {
  asm volatile("" : "+r"(address));
  if ((u64)address % nbytes) fail(MISALIGNED);
}

// What another lane of the subgroup has. Two slots in turn: nobody writes to one again before all have read it.
template <class T> static inline T exchange(T mine, u32 lane) {
  static_assert(sizeof(T) <= SLOT_NBYTES, "a slot holds what is exchanged");
  const u32 first = current / SUBGROUP * SUBGROUP;
  const u32 turn = turns[current] ^= 1;
  if (lane >= SUBGROUP || first + lane >= launch->group_size) fail(NO_SUCH_LANE);
  __builtin_memcpy(slots[turn][current], &mine, sizeof(T));
  wait(AT_SUBGROUP);
  T found;
  __builtin_memcpy(&found, slots[turn][first + lane], sizeof(T));
  return found;
}

// Memory that the group shares: what the kernel declares, or what the launch gave.
static inline void expect_shared(const void* place, u64 nbytes) {
  const char* const at = (const char*)place;
  const bool is_declared = at >= shared_begin && at + nbytes <= shared_end;
  if (!is_declared && !(at >= launch->given && at + nbytes <= launch->given + launch->given_nbytes)) fail(NOT_SHARED);
}

// What every lane of the subgroup has.
template <class T> struct Lanes { T of[SUBGROUP]; };
template <class T> static inline Lanes<T> gathered(T mine) {
  Lanes<T> found;
  const u32 first = current / SUBGROUP * SUBGROUP;
  const u32 turn = turns[current] ^= 1;
  static_assert(sizeof(T) <= SLOT_NBYTES, "a slot holds what is exchanged");
  if (first + SUBGROUP > launch->group_size) fail(NO_SUCH_LANE);
  __builtin_memcpy(slots[turn][current], &mine, sizeof(T));
  wait(AT_SUBGROUP);
  for (u32 i = 0; i < SUBGROUP; ++i) __builtin_memcpy(&found.of[i], slots[turn][first + i], sizeof(T));
  return found;
}

static inline u32 lane() { return current % SUBGROUP; }

static void start_threads(u32 count) {
  for (u32 i = 0; i < count; ++i) {
    char* const end = launch->stacks + (i + 1) * launch->stack_nbytes;
    void** top = (void**)((u64)end & ~(u64)15);
    *--top = nullptr;
    *--top = (void*)thread_main;
    for (u32 saved = 0; saved < 6; ++saved) *--top = nullptr;
    stack_tops[i] = top;
    states[i] = READY;
    turns[i] = 0;
  }
}

static void run_ready(u32 begin, u32 end) {
  for (u32 i = begin; i < end; ++i) order[i] = i;
  for (u32 i = end; i-- > begin + 1;) {
    const u32 j = begin + random() % (i + 1 - begin), held = order[i];
    order[i] = order[j];
    order[j] = held;
  }
  for (u32 i = begin; i < end && !launch->fault; ++i) {
    if (states[order[i]] != READY) continue;
    current = order[i];
    thread_place.x = current;
    rlx_shim_switch(&scheduler, stack_tops[current]);
  }
}

static bool all_are(State state, u32 begin, u32 end) {
  for (u32 i = begin; i < end; ++i) if (states[i] != state) return false;
  return true;
}

static void release(u32 begin, u32 end) {
  for (u32 i = begin; i < end; ++i) states[i] = READY;
}

static u32 end_of(u32 begin, u32 count) { return begin + SUBGROUP < count ? begin + SUBGROUP : count; }

// Lets a subgroup go on, all of which waits for one another: mostly the one that did so last, so that some are far ahead of others.
// What is read and written in different subgroups without a barrier between is then read too early in some runs.
static bool advanced(u32 count, u32& last) {
  const u32 many = (count + SUBGROUP - 1) / SUBGROUP;
  if (random() % 8 == 0) last = random() % many;
  for (u32 i = 0; i < many; ++i) {
    const u32 begin = last * SUBGROUP, end = end_of(begin, count);
    if (all_are(AT_SUBGROUP, begin, end)) {
      release(begin, end);
      run_ready(begin, end);
      return true;
    }
    last = (last + 1) % many;
  }
  return false;
}

static void run_group(u32 count) {
  start_threads(count);
  u32 last = 0;
  run_ready(0, count);
  for (;;) {
    if (launch->fault) return;
    if (advanced(count, last)) continue;
    if (all_are(DONE, 0, count)) return;
    if (all_are(AT_GROUP, 0, count)) {
      release(0, count);
      run_ready(0, count);
      continue;
    }
    for (current = 0; states[current] == DONE; ++current) {}
    for (u32 i = 0; i < count; ++i) if (states[i] == AT_SUBGROUP) current = i;
    note(states[current] == AT_SUBGROUP ? SUBGROUP_DIVERGES : GROUP_DIVERGES);
    return;
  }
}

static u32 common_divisor(u32 a, u32 b) { return b ? common_divisor(b, a % b) : a; }

// What lies below it belongs to nobody, so that a stack which is a little too small is noticed.
static u64* canary(u32 thread) { return (u64*)(launch->stacks + thread * launch->stack_nbytes + UNUSED_NBYTES); }

// All groups, in an order that is drawn: from some group on in steps that reach every one.
static void run(Launch* wanted, void (*entry)(void**), char* begin, char* end) {
  launch = wanted;
  shared_begin = begin, shared_end = end;
  body = entry;
  launch->cells[launch->arguments] = &thread_place.x;
  launch->cells[launch->arguments + 1] = &group_place.x;
  launch->shared_nbytes = (u32)(end - begin);
  random_state = launch->seed * 2654435761u | 1u;
  const u32 groups = launch->groups, count = launch->group_size;
  thread_place = group_place = Dim{0, 0, 0};
  group_sizes = Dim{count, 1, 1};
  grid_sizes = Dim{groups, 1, 1};
  for (u32 i = 0; i < count; ++i) *canary(i) = CANARY;
  u32 step = random() % groups + 1;
  while (common_divisor(step, groups) != 1) step = step % groups + 1;
  u32 number = random() % groups;
  for (u32 i = 0; i < groups && !launch->fault; ++i) {
    group_place.x = number;
    if (begin != end) __builtin_memset(begin, 0xff, end - begin);
    if (launch->given_nbytes) {
      __builtin_memset(launch->given, 0xff, launch->given_nbytes);
      watch.starts();
    }
    run_group(count);
    if (launch->given_nbytes) watch.ends();
    number = (u32)(((u64)number + step) % groups);
  }
  for (current = 0; current < count && !launch->fault; ++current) if (*canary(current) != CANARY) note(STACK_OVERFLOWS);
}

// A kernel called with its arguments, each of which is read from its cell as what the kernel declares it to be.
template <class T> struct Cell { static T of(void* cell) { return *(T*)cell; } };
template <class T> struct Cell<T&> { static T& of(void* cell) { return *(T*)cell; } };
template <u32... I> struct Places {};
template <u32 N, u32... I> struct Count : Count<N - 1, N - 1, I...> {};
template <u32... I> struct Count<0, I...> { typedef Places<I...> places; };
template <class... A, u32... I> static inline void call(void (*kernel)(A...), void** cells, Places<I...>) {
  kernel(Cell<A>::of(cells[I])...);
}
template <class... A> static inline void call(void (*kernel)(A...), void** cells) {
  call(kernel, cells, typename Count<sizeof...(A)>::places());
}

}  // namespace shim

// What the driver writes in front of each kernel is `RLX_SHIM_SECTION`: all shared memory of one kernel lies together.
#define RLX_SHIM_SHARED static __attribute__((section(RLX_SHIM_SECTION)))

// What the driver writes behind all kernels, for each: how it is run from outside.
#define RLX_SHIM_ENTRY(NAME, NUMBER)                                                                         \
  extern char __start_rlx_shared_##NUMBER[] __attribute__((weak, visibility("hidden")));                     \
  extern char __stop_rlx_shared_##NUMBER[] __attribute__((weak, visibility("hidden")));                      \
  static void rlx_call_##NAME(void** cells) { shim::call(NAME, cells); }                                     \
  extern "C" __attribute__((visibility("default"))) void rlx_run_##NAME(shim::Launch* launch) {              \
    shim::run(launch, rlx_call_##NAME, __start_rlx_shared_##NUMBER, __stop_rlx_shared_##NUMBER);             \
  }
