#include "shared/base/status.h"

#include <cerrno>
#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "shared/base/clock.h"
#include "shared/base/hash.h"
#include "shared/base/tensor_spec.h"

namespace stoker {
namespace {

Result<int> halve(int number) {
  if (number % 2 != 0)
    return Status(StatusCode::kInvalidArgument, std::to_string(number) + " is odd");
  return number / 2;
}

Status quarter_into(int number, int& quarter) {
  STOKER_ASSIGN_OR_RETURN(const int half, halve(number));
  STOKER_ASSIGN_OR_RETURN(quarter, halve(half));
  return {};
}

TEST(StatusTest, ReturnsFirstErrorFromResultMacrosWithoutChangingOutput) {
  int quarter = -1;
  EXPECT_TRUE(quarter_into(12, quarter).ok());
  EXPECT_EQ(quarter, 3);
  const Status status = quarter_into(6, quarter);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "3 is odd");
  EXPECT_EQ(quarter, 3);
}

TEST(StatusTest, PrependsContextAndPreservesCode) {
  const Status status = Status(StatusCode::kNoSpace, "write a: full").with_context("save step 7");
  EXPECT_EQ(status.to_string(), "no space: save step 7: write a: full");
  EXPECT_TRUE(Status().with_context("nothing").ok());
}

TEST(StatusTest, MapsErrnoToStatusCode) {
  EXPECT_EQ(Status::from_errno(ENOSPC, "x").code(), StatusCode::kNoSpace);
  EXPECT_EQ(Status::from_errno(EDQUOT, "x").code(), StatusCode::kNoSpace);
  EXPECT_EQ(Status::from_errno(EROFS, "x").code(), StatusCode::kPermission);
  EXPECT_EQ(Status::from_errno(EIO, "read y").message(), "read y: Input/output error");
}

TEST(ResultTest, HoldsMoveOnlyValue) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  ASSERT_TRUE(result.ok());
  std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 5);
}

TEST(ExitCodeTest, MapsStatusCodeToExitCode) {
  // As docs/operations.md has them: 70 for defects only.
  const std::map<StatusCode, int> expected{
      {StatusCode::kOk, 0},          {StatusCode::kInvalidArgument, 78},
      {StatusCode::kNotFound, 78},   {StatusCode::kAlreadyExists, 74},
      {StatusCode::kTimedOut, 75},   {StatusCode::kClosed, 75},
      {StatusCode::kCancelled, 0},   {StatusCode::kCorrupt, 65},
      {StatusCode::kMismatch, 78},   {StatusCode::kIoError, 74},
      {StatusCode::kNoSpace, 74},    {StatusCode::kBusy, 75},
      {StatusCode::kPermission, 78}, {StatusCode::kOutOfMemory, 71},
      {StatusCode::kDeviceLost, 72}, {StatusCode::kUnreachable, 69},
      {StatusCode::kInternal, 70},   {StatusCode::kPeerLost, 73}};
  ASSERT_EQ(expected.size(), static_cast<size_t>(kLastStatusCode) + 1);
  for (const auto& [code, exit_code] : expected)
    EXPECT_EQ(static_cast<int>(exit_code_for(Status(code, ""))), exit_code) << to_string(code);
}

TEST(Sha256Test, MatchesPublishedTestVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(TensorSpecTest, ComputesBytesAndFormatsSafetensorsTypeNames) {
  const TensorSpec spec{"w", DType::kBF16, {3, 4}};
  EXPECT_EQ(spec.bytes(), 24u);
  EXPECT_EQ(to_string(spec), "w BF16 [3, 4]");
  EXPECT_EQ((TensorSpec{"s", DType::kI64, {}}.bytes()), 8u);
  EXPECT_EQ(parse_dtype("F32"), DType::kF32);
  EXPECT_FALSE(parse_dtype("f32").has_value());
}

TEST(ClockTest, AdvancesManualClockOnlyExplicitlyAndParsesIso8601) {
  ManualClock clock;
  const auto before = clock.monotonic();
  clock.advance(std::chrono::milliseconds(1500));
  EXPECT_DOUBLE_EQ(seconds_between(before, clock.monotonic()), 1.5);
  EXPECT_EQ(to_iso8601(clock.wall()), "1970-01-01T00:00:01.500Z");
  EXPECT_EQ(parse_iso8601("1970-01-01T00:00:01.500Z"), clock.wall());
  EXPECT_EQ(to_iso8601(*parse_iso8601("2026-02-28T23:59:59.999Z")), "2026-02-28T23:59:59.999Z");
  for (const char* const text : {"", "now", "2026-02-30T00:00:00.000Z", "2026-01-01T00:00:60.000Z",
                                 "2026-01-01T00:00:00.000", "2026-01-01T00:00:00.000Z ",
                                 "9999-01-01T00:00:00.000Z", "0000-01-01T00:00:00.000Z"})
    EXPECT_FALSE(parse_iso8601(text).has_value()) << text;
}

}  // namespace
}  // namespace stoker
