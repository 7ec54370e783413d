/* Wrong uses of mbarriers, bulk copies and proxy fences: each ends the process with a message.  Each fault is
 * tested next to the same kernel without it. */
#include "tests/cudarace/race_test.h"

enum { STAGE = 64, STAGE_BYTES = STAGE * 4 }; /* STAGE: floats */

static uint64_t *bars(void)
{
	return (uint64_t *)(void *)kern_smem();
}

static float *stage(int i)
{
	return (float *)(void *)(kern_smem() + 128) + i * STAGE;
}

static void init(uint64_t *bar, uint32_t count)
{
	if (threadIdx.x == 0) {
		mbar_init(bar, count);
		fence_proxy_async_shared();
	}
	block_sync();
}

static void load(int i, const float *from, uint64_t *bar)
{
	mbar_arrive_expect_tx(bar, STAGE_BYTES);
	bulk_load(stage(i), from, STAGE_BYTES, bar);
}

/* ---- mbarriers ---- */

static void a_wait_on_no_mbarrier_kernel(float *, bool mended)
{
	if (mended)
		init(bars(), THREADS);
	mbar_test_wait_parity(bars(), 1);
}
FAULT(a_wait_on_no_mbarrier, 1, "was not initialized")

static void an_mbarrier_initialized_twice_kernel(float *, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0 && mended)
		mbar_inval(bars());
	if (threadIdx.x == 0)
		mbar_init(bars(), 1);
}
FAULT(an_mbarrier_initialized_twice, 1, "is in use")

static void an_mbarrier_out_of_step_kernel(float *, bool mended)
{
	if (threadIdx.x == 0)
		mbar_init((uint64_t *)(void *)(kern_smem() + (mended ? 8 : 4)), 1);
}
FAULT(an_mbarrier_out_of_step, 1, "not aligned to 8")

static void an_mbarrier_of_none_kernel(float *, bool mended)
{
	if (threadIdx.x == 0)
		mbar_init(bars(), mended);
}
FAULT(an_mbarrier_of_none, 1, "with a count of 0")

/* 5 arrive where 4 are expected: the last arrival would begin the next phase. */
static void arrivals_beyond_the_count_kernel(float *, bool mended)
{
	init(bars(), 4);
	if (threadIdx.x == 0)
		mbar_arrive(bars(), 3);
	block_sync();
	if (threadIdx.x == 0)
		mbar_arrive(bars(), mended ? 1 : 2);
}
FAULT(arrivals_beyond_the_count, 1, "2 arrivals at the mbarrier at 0, 1 of 4 are pending")

static void an_mbarrier_ends_under_a_wait_kernel(float *, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0 && mended)
		mbar_arrive(bars());
	if (warp_id() == 1)
		mbar_wait_parity(bars(), 0);
	if (mended)
		block_sync();
	if (threadIdx.x == 0)
		mbar_inval(bars());
}
/* Depending on the order, this is detected as a race with the wait, as a waiting thread, or by the wait as no
 * mbarrier. */
FAULT(an_mbarrier_ends_under_a_wait, 1, "barrier")

static void an_mbarrier_ends_under_a_copy_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0) {
		load(0, out, bars());
		if (mended)
			mbar_wait_parity(bars(), 0);
		mbar_inval(bars());
	}
}
FAULT(an_mbarrier_ends_under_a_copy, 1, "mbarrier.inval: ")

static void a_store_onto_an_mbarrier_kernel(float *, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0)
		bars()[mended] = 0;
}
FAULT(a_store_onto_an_mbarrier, 1, "a store at 0 in shared memory, which is an mbarrier's")

static void an_mbarrier_used_before_all_know_it_kernel(float *, bool mended)
{
	if (threadIdx.x == 0)
		mbar_init(bars(), THREADS);
	if (mended)
		block_sync();
	else if (warp_id() == 0)
		warp_sync();
	if (mended || warp_id() == 0 || threadIdx.x == WARP)
		mbar_arrive(bars());
}
FAULT(an_mbarrier_used_before_all_know_it, 1, "mbarrier")

static void a_state_of_long_ago_kernel(float *, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x)
		return;
	const uint64_t state = mbar_arrive(bars());
	if (!mended)
		mbar_arrive(bars());
	mbar_test_wait(bars(), state);
}
FAULT(a_state_of_long_ago, 1, "the state is of phase 0, now it is phase 2")

/* One of two arrivals is missing: the wait never ends, and the message says so. */
static void a_phase_that_never_ends_kernel(float *, bool mended)
{
	init(bars(), 2);
	if (lane_id() == 0 && warp_id() <= mended)
		mbar_arrive(bars());
	mbar_wait_parity(bars(), 0);
}
FAULT(a_phase_that_never_ends, 1, "threads wait for others that never come")

/* ---- order by mbarriers ---- */

static void hand_over(float *out, bool arrive_by_all, bool wait, uint32_t parity)
{
	init(bars(), arrive_by_all ? WARP : 1);
	if (warp_id() == 0) {
		stage(0)[lane_id()] = 1;
		if (arrive_by_all || lane_id() == 0)
			mbar_arrive(bars());
	} else if (warp_id() == 1) {
		if (wait)
			mbar_wait_parity(bars(), parity);
		out[lane_id()] = stage(0)[WARP - 1 - lane_id()];
	}
}

static void a_read_without_the_wait_kernel(float *out, bool mended)
{
	hand_over(out, true, mended, 0);
}
FAULT(a_read_without_the_wait, 1, "race at ")

/* Parity 1 is that of the phase before the first phase, which is complete. */
static void a_wait_for_the_wrong_parity_kernel(float *out, bool mended)
{
	hand_over(out, true, true, mended ? 0 : 1);
}
FAULT(a_wait_for_the_wrong_parity, 1, "race at ")

/* An arrival orders its thread, not its warp. */
static void an_arrival_for_lanes_that_did_not_meet_kernel(float *out, bool mended)
{
	hand_over(out, mended, true, 0);
}
FAULT(an_arrival_for_lanes_that_did_not_meet, 1, "race at ")

static void a_wait_by_one_lane_for_all_kernel(float *out, bool mended)
{
	init(bars(), WARP);
	if (warp_id() == 0) {
		stage(0)[lane_id()] = 1;
		mbar_arrive(bars());
	} else if (warp_id() == 1) {
		if (lane_id() == 0)
			mbar_wait_parity(bars(), 0);
		if (mended)
			warp_sync();
		out[lane_id()] = stage(0)[lane_id()];
	}
}
FAULT(a_wait_by_one_lane_for_all, 1, "race at ")

/* Writes after the arrival are not released by it. */
static void a_write_after_the_arrival_kernel(float *out, bool mended)
{
	init(bars(), WARP);
	if (warp_id() == 0) {
		if (mended)
			stage(0)[lane_id()] = 1;
		mbar_arrive(bars());
		if (!mended)
			stage(0)[lane_id()] = 1;
	} else if (warp_id() == 1) {
		mbar_wait_parity(bars(), 0);
		out[lane_id()] = stage(0)[lane_id()];
	}
}
FAULT(a_write_after_the_arrival, 1, "race at ")

/* ---- bulk copies into shared memory ---- */

static void a_bulk_copy_read_too_early_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0)
		load(0, out, bars());
	if (mended)
		mbar_wait_parity(bars(), 0);
	const float v = stage(0)[threadIdx.x % STAGE];
	mbar_wait_parity(bars(), 0);
	if (v > 1)
		out[threadIdx.x] = v;
}
FAULT(a_bulk_copy_read_too_early, 1, "race at ")

static void a_bulk_copy_found_by_the_wrong_parity_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0)
		load(0, out, bars());
	mbar_wait_parity(bars(), mended ? 0 : 1);
	const float v = stage(0)[threadIdx.x % STAGE];
	if (v > 1)
		out[threadIdx.x] = v;
}
FAULT(a_bulk_copy_found_by_the_wrong_parity, 1, "race at ")

/* The stage is refilled while a warp still reads it. */
static void a_stage_filled_before_all_have_read_kernel(float *out, bool mended)
{
	uint64_t *full = bars(), *empty = bars() + 2;
	if (threadIdx.x == 0) {
		mbar_init(full, 1);
		mbar_init(full + 1, 1);
		mbar_init(empty, 3 * WARP);
		fence_proxy_async_shared();
	}
	block_sync();
	float sum = 0;
	for (int i = 0; i < 4; i++) {
		if (threadIdx.x == 0) {
			if (mended || i % 2 == 0)
				mbar_wait_parity(empty, (i + 1) % 2);
			load(0, out + i * STAGE, full + i % 2);
		} else if (warp_id()) {
			mbar_wait_parity(full + i % 2, i / 2);
			sum += stage(0)[threadIdx.x % STAGE];
			mbar_arrive(empty);
		}
	}
	if (sum > 1)
		out[threadIdx.x] = sum;
}
FAULT(a_stage_filled_before_all_have_read, 1, "in shared memory: ")

static void a_store_under_a_bulk_copy_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0) {
		load(0, out, bars());
		if (mended)
			mbar_wait_parity(bars(), 0);
		stage(0)[0] = 1;
		mbar_wait_parity(bars(), 0);
	}
}
FAULT(a_store_under_a_bulk_copy, 1, "the copy there is not waited for")

static void a_bulk_copy_for_no_wait_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0) {
		load(0, out, bars());
		if (mended)
			mbar_wait_parity(bars(), 0);
	}
}
FAULT(a_bulk_copy_for_no_wait, 1, "the block ended: ")

/* Fewer bytes than expected arrive: the phase never ends. */
static void bytes_that_never_come_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0) {
		mbar_arrive_expect_tx(bars(), STAGE_BYTES);
		bulk_load(stage(0), out, mended ? STAGE_BYTES : STAGE_BYTES / 2, bars());
	}
	mbar_wait_parity(bars(), 0);
}
FAULT(bytes_that_never_come, 1, "threads wait for others that never come")

static void a_bulk_copy_of_odd_size_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0) {
		const uint32_t bytes = mended ? 16 : 24;
		mbar_arrive_expect_tx(bars(), bytes);
		bulk_load(stage(0), out, bytes, bars());
		mbar_wait_parity(bars(), 0);
	}
}
FAULT(a_bulk_copy_of_odd_size, 1, "cp.async.bulk to shared memory of 24 bytes")

static void a_bulk_copy_from_an_odd_address_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0) {
		load(0, out + (mended ? 4 : 2), bars());
		mbar_wait_parity(bars(), 0);
	}
}
FAULT(a_bulk_copy_from_an_odd_address, 1, "is not aligned to 16")

static void a_bulk_copy_beyond_its_piece_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0) {
		load(0, out + FLOATS - (mended ? STAGE : STAGE / 2), bars());
		mbar_wait_parity(bars(), 0);
	}
}
FAULT(a_bulk_copy_beyond_its_piece, 1, "of a device piece of")

static void a_bulk_copy_over_an_mbarrier_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0) {
		mbar_arrive_expect_tx(bars(), 16);
		bulk_load(kern_smem() + (mended ? 16 : 0), out, 16, bars());
		mbar_wait_parity(bars(), 0);
	}
}
FAULT(a_bulk_copy_over_an_mbarrier, 1, "is in the way")

/* ---- bulk stores ---- */

static void store_out(float *out, bool wait, bool wait_read, float again)
{
	if (threadIdx.x == 0) {
		bulk_store(out, stage(0), STAGE_BYTES);
		bulk_commit();
		if (wait_read)
			bulk_wait_read<0>();
		if (again > 0)
			stage(0)[0] = again;
		bulk_wait_read<0>();
		if (wait)
			bulk_wait<0>();
	}
}

static void a_bulk_store_without_a_proxy_fence_kernel(float *out, bool mended)
{
	if (threadIdx.x < STAGE)
		stage(0)[threadIdx.x] = 1;
	if (mended)
		fence_proxy_async_shared();
	block_sync();
	store_out(out, false, false, 0);
}
FAULT(a_bulk_store_without_a_proxy_fence, 1, "no proxy fence before the async proxy comes, after a write by")

/* A fence by the storing thread does not replace the writers' fences; after the barrier it is too late. */
static void a_proxy_fence_by_another_thread_kernel(float *out, bool mended)
{
	if (threadIdx.x < STAGE)
		stage(0)[threadIdx.x] = 1;
	if (mended)
		fence_proxy_async_shared();
	block_sync();
	if (threadIdx.x == 0)
		fence_proxy_async_shared();
	store_out(out, false, false, 0);
}
FAULT(a_proxy_fence_by_another_thread, 1, "no proxy fence")

static void a_proxy_fence_before_the_write_kernel(float *out, bool mended)
{
	if (!mended)
		fence_proxy_async_shared();
	if (threadIdx.x < STAGE)
		stage(0)[threadIdx.x] = 1;
	if (mended)
		fence_proxy_async_shared();
	block_sync();
	store_out(out, false, false, 0);
}
FAULT(a_proxy_fence_before_the_write, 1, "no proxy fence")

/* Every writer fences, but one of them only after the barrier. */
static void a_proxy_fence_behind_the_barrier_kernel(float *out, bool mended)
{
	if (threadIdx.x < STAGE)
		stage(0)[threadIdx.x] = 1;
	if (mended || warp_id() == 0)
		fence_proxy_async_shared();
	block_sync();
	if (warp_id() == 1)
		fence_proxy_async_shared();
	store_out(out, false, false, 0);
}
FAULT(a_proxy_fence_behind_the_barrier, 1, "no proxy fence")

static void a_proxy_fence_of_another_space_kernel(float *out, bool mended)
{
	if (threadIdx.x < STAGE)
		stage(0)[threadIdx.x] = 1;
	if (mended)
		fence_proxy_async();
	else
		fence_proxy_async_global();
	block_sync();
	store_out(out, false, false, 0);
}
FAULT(a_proxy_fence_of_another_space, 1, "no proxy fence")

static void a_bulk_store_before_the_barrier_kernel(float *out, bool mended)
{
	if (threadIdx.x < STAGE)
		stage(0)[threadIdx.x] = 1;
	fence_proxy_async_shared();
	if (mended)
		block_sync();
	store_out(out, false, false, 0);
}
FAULT(a_bulk_store_before_the_barrier, 1, "race at ")

static void a_write_under_a_bulk_store_kernel(float *out, bool mended)
{
	if (threadIdx.x < STAGE)
		stage(0)[threadIdx.x] = 1;
	fence_proxy_async_shared();
	block_sync();
	store_out(out, false, mended, 2);
}
FAULT(a_write_under_a_bulk_store, 1, "still read by the async proxy")

static void a_bulk_store_read_back_too_early_kernel(float *out, bool mended)
{
	if (threadIdx.x < STAGE)
		stage(0)[threadIdx.x] = 1;
	fence_proxy_async_shared();
	block_sync();
	store_out(out, mended, true, 0);
	if (threadIdx.x == 0 && out[1] > 2)
		out[STAGE] = 1;
}
FAULT(a_bulk_store_read_back_too_early, 1, "the bulk store there is not waited for")

static void a_block_that_ends_under_a_bulk_store_kernel(float *out, bool mended)
{
	if (threadIdx.x < STAGE)
		stage(0)[threadIdx.x] = 1;
	fence_proxy_async_shared();
	block_sync();
	if (threadIdx.x == 0) {
		bulk_store(out, stage(0), STAGE_BYTES);
		if (mended)
			bulk_commit();
		bulk_wait_read<0>(); /* waits only for committed groups */
	}
}
FAULT(a_block_that_ends_under_a_bulk_store, 1,
      "the block ended, and no wait was for a bulk store of 256 bytes")

/* ---- both proxies at one address ---- */

static void an_mbarrier_that_bulk_copies_do_not_know_kernel(float *out, bool mended)
{
	if (threadIdx.x == 0) {
		mbar_init(bars(), 1);
		if (mended)
			fence_proxy_async_shared();
		load(0, out, bars());
		mbar_wait_parity(bars(), 0);
	}
}
FAULT(an_mbarrier_that_bulk_copies_do_not_know, 1, "no proxy fence before a bulk copy uses the mbarrier")

static void a_bulk_copy_over_what_was_written_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0) {
		stage(0)[0] = 1;
		if (mended)
			fence_proxy_async_shared();
		load(0, out, bars());
		mbar_wait_parity(bars(), 0);
	}
}
FAULT(a_bulk_copy_over_what_was_written, 1, "no proxy fence")

static void a_bulk_copy_of_what_this_launch_wrote_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0) {
		out[0] = 1;
		if (mended)
			fence_proxy_async_global();
		load(0, out, bars());
		mbar_wait_parity(bars(), 0);
	}
}
FAULT(a_bulk_copy_of_what_this_launch_wrote, 1, "no proxy fence")

/* One bulk copy loads the data that another stores: both use the same proxy, so no fence is needed. */
static void a_copy_passed_on_before_its_wait_kernel(float *out, bool mended)
{
	init(bars(), 1);
	if (threadIdx.x == 0) {
		load(0, out, bars());
		if (mended)
			mbar_wait_parity(bars(), 0);
		store_out(out + STAGE, false, false, 0);
		mbar_wait_parity(bars(), 0);
	}
}
FAULT(a_copy_passed_on_before_its_wait, 1, "the copy there is not waited for")

/* ---- adjacent bytes are separate ---- */

static void bytes_of_two_threads_kernel(float *out, bool mended)
{
	unsigned char *x = (unsigned char *)(void *)out, *y = kern_smem();
	const unsigned at = mended ? threadIdx.x : threadIdx.x / 2;
	x[at] = y[at] = 1;
}
FAULT(bytes_of_two_threads, 1, "race at ")
