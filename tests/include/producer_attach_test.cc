// attach() of include/stoker/producer.h: sockets, replies and segments that are not those of a
// running stokerd of this version.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include <gmock/gmock.h>

#include "shared/ring/ring_layout.h"
#include "tests/include/producer_fixture.h"
#include "tests/support/test_seed.h"

namespace stoker::producer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ProducerAttachTest : public ProducerTest {
 protected:
  void SetUp() override { open({.slots = 2}); }

  Error attach_error() {
    const auto producer = attach(daemon_.directory());
    return producer.ok() ? Error{ErrorCode::kEnded, "attached"} : producer.error();
  }
  Error error_of_segment(std::span<const std::byte> bytes,
                         int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
    daemon_.set_attach(0, 1, ring::memfd_of(bytes, seals).get());
    return attach_error();
  }
  Error error_of_reply(const std::string& line) {
    daemon_.set_attach(line, ring_->fd());
    return attach_error();
  }
  // The bytes of a valid segment in which a producer is registered, changed.
  std::vector<std::byte> segment(const std::function<void(ring::RingHeader&)>& change) {
    auto bytes = ring::bytes_of(*ring_);
    ring::RingHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    change(header);
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
  }
};

// ---- Sockets

TEST_F(ProducerAttachTest, AttachesThroughDirectoryAndSocket) {
  daemon_.set_attach(0, 1, ring_->fd());
  EXPECT_TRUE(attach(daemon_.directory()).ok());
  const auto producer = attach(daemon_.socket());
  ASSERT_TRUE(producer.ok()) << producer.error().message;
  EXPECT_EQ(producer->worker_timeout(), 60500ms);
  EXPECT_EQ(producer->batch_size(), 3u);
}

TEST_F(ProducerAttachTest, ReportsMissingAndOtherFiles) {
  for (const std::string& path :
       {daemon_.directory() + "/none", std::string(), std::string("/"), std::string("/dev/null")}) {
    const auto producer = attach(path);
    ASSERT_FALSE(producer.ok()) << path;
    EXPECT_EQ(producer.error().code, ErrorCode::kUnreachable) << path;
    EXPECT_THAT(producer.error().message, HasSubstr(path));
  }
}

TEST_F(ProducerAttachTest, ReportsSocketWithoutListeningProcess) {
  const std::string path = daemon_.directory() + "/stale.sock";
  (void)listen_on(path);
  const auto producer = attach(path);
  EXPECT_EQ(producer.error().code, ErrorCode::kUnreachable);
  EXPECT_EQ(producer.error().message, path + ": Connection refused; is stokerd running?");
}

TEST_F(ProducerAttachTest, AttachesThroughLongPath) {
  const std::string folder = daemon_.directory() + "/" + std::string(150, 'd');
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(daemon_.socket(), folder + "/control.sock");
  daemon_.set_attach(0, 1, ring_->fd());
  EXPECT_TRUE(attach(folder + "/control.sock").ok());
  EXPECT_EQ(attach(folder + "/" + std::string(120, 's')).error().code, ErrorCode::kUnreachable);
}

// The symlink of a crashed run, to a socket that another run uses.
TEST_F(ProducerAttachTest, RejectsSocketOfAnotherRun) {
  const std::string run_dir = daemon_.directory() + "/other";
  std::filesystem::create_directory(run_dir);
  std::filesystem::create_symlink(daemon_.socket(), run_dir + "/control.sock");
  daemon_.set_attach(0, 1, ring_->fd());
  const auto producer = attach(run_dir);
  ASSERT_FALSE(producer.ok());
  EXPECT_EQ(producer.error().code, ErrorCode::kRejected);
  EXPECT_THAT(producer.error().message, HasSubstr("another run, /runs/fake"));
}

// The daemon runs as one user, this process as another one, and the directory belongs to root.
TEST_F(ProducerAttachTest, SendsNothingToDaemonOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to start a process of another user";
  constexpr uid_t kOther = 65533, kUnprivileged = 65534;
  std::filesystem::permissions(daemon_.directory(), std::filesystem::perms::all);
  const std::string path = daemon_.directory() + "/other.sock";
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd in(ends[0]), out(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::setresuid(kOther, kOther, kOther) != 0) ::_exit(1);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const UniqueFd listener = listen_on(path);
    ::chmod(path.c_str(), 0777);
    if (::write(out.get(), "x", 1) != 1) ::_exit(1);
    const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
    char byte = 0;
    ::_exit(::read(client.get(), &byte, 1) == 0 ? 0 : 2);  // closed without a request
  }
  char byte = 0;
  ASSERT_EQ(::read(in.get(), &byte, 1), 1);
  ASSERT_EQ(::seteuid(kUnprivileged), 0);
  const auto producer = attach(path);
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_EQ(producer.error().code, ErrorCode::kRejected);
  EXPECT_THAT(producer.error().message, HasSubstr("belongs to uid 65533"));
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(ProducerAttachTest, TimesOutWithoutReply) {
  daemon_.be_silent();
  for (const std::string& path : {daemon_.directory(), daemon_.socket()})
    EXPECT_EQ(attach(path, 20ms).error().code, ErrorCode::kTimedOut);
}

TEST_F(ProducerAttachTest, ReportsClosedConnection) {
  EXPECT_EQ(error_of_reply("").code, ErrorCode::kUnreachable);
  daemon_.set_hello("");
  EXPECT_EQ(attach_error().code, ErrorCode::kUnreachable);
}

// ---- Replies

TEST_F(ProducerAttachTest, ReturnsErrorOfDaemon) {
  const auto reply = [](const std::string& kind) {
    return R"({"id":1,"error":{"code":-32000,"message":"not \"now\"\n\u0041\u00e9","data":{"kind":")" +
           kind + R"("}}})";
  };
  EXPECT_EQ(error_of_reply(reply("busy")).code, ErrorCode::kBusy);
  EXPECT_EQ(error_of_reply(reply("closed")).code, ErrorCode::kClosed);
  EXPECT_EQ(error_of_reply(reply("timed out")).code, ErrorCode::kTimedOut);
  const Error error = error_of_reply(reply("not permitted"));
  EXPECT_EQ(error.code, ErrorCode::kRejected);
  EXPECT_EQ(error.message, daemon_.socket() + ": not \"now\" A?");
  EXPECT_EQ(error_of_reply(R"({"id":null,"error":{}})").code, ErrorCode::kRejected);
  EXPECT_EQ(error_of_reply(R"({"id":null,"error":7})").code, ErrorCode::kRejected);
}

TEST_F(ProducerAttachTest, RejectsOtherReplies) {
  for (const char* line :
       {"HTTP/1.1 400 Bad Request", "{", "[]", "{\"result\"}", "{\"result\":", "{\"result\":{}",
        R"({"id":1,"result":{}})", R"({"id":1,"result":[0,1]})",
        R"({"id":1,"result":{"producer":0}})",
        R"({"id":1,"result":{"producer":-1,"generation":1}})",
        R"({"id":1,"result":{"producer":64,"generation":1}})",
        R"({"id":1,"result":{"producer":0,"generation":0}})",
        R"({"id":1,"result":{"producer":0,"generation":1048576}})",
        R"({"id":1,"result":{"producer":0.5,"generation":1}})",
        R"({"id":1,"result":{"producer":"0","generation":"1"}})",
        R"({"id":1,"result":{"producer":99999999999999999999,"generation":1}})"}) {
    const Error error = error_of_reply(line);
    EXPECT_TRUE(error.code == ErrorCode::kUnreachable || error.code == ErrorCode::kMismatch)
        << line;
  }
}

TEST_F(ProducerAttachTest, NeverCrashesOnRandomReplies) {
  const std::string good =
      R"({"id":1,"skipped":[{"a":"\u0031\\"},-1.5e3,true,null],"result":{"producer":0,"generation":1}})";
  daemon_.set_attach(good, ring_->fd());
  ASSERT_TRUE(attach(daemon_.directory()).ok());
  std::mt19937 random(static_cast<uint32_t>(test::test_seed() + 5));
  const std::string alphabet = "{}[]\",:\\u0123456789abcdeftrn-+. \x01\x80";
  for (int round = 0; round < 2000; ++round) {
    std::string line = good.substr(0, random() % 4 == 0 ? random() % good.size() : good.size());
    for (size_t change = random() % 4; change > 0 && !line.empty(); --change)
      line[random() % line.size()] = alphabet[random() % alphabet.size()];
    for (const char* name : {"result", "error", "skipped", ""})
      if (const auto text = internal::JsonReader::member(line, name)) {
        ASSERT_LE(text->size(), line.size());
        (void)internal::JsonReader::number<uint64_t>(text);
        (void)internal::JsonReader::number<double>(text);
        (void)internal::JsonReader::string(text);
        (void)internal::JsonReader::member(*text, "producer");
      }
  }
  std::string deep = R"({"x":)" + std::string(100'000, '[');
  EXPECT_FALSE(internal::JsonReader::member(deep, "result"));
}

// ---- Segments

TEST_F(ProducerAttachTest, RejectsOtherVersionWithOneError) {
  const std::string expected =
      daemon_.socket() +
      ": the ring has version 3, stoker/producer.h of this program has "
      "version 2; recompile it with the header that is installed with that "
      "stokerd";
  const Error in_segment =
      error_of_segment(segment([](ring::RingHeader& header) { header.version = 3; }));
  EXPECT_EQ(in_segment.code, ErrorCode::kMismatch);
  EXPECT_EQ(in_segment.message, expected);
  const Error in_reply =
      error_of_reply(R"({"id":1,"result":{"producer":0,"generation":1,"format":3}})");
  EXPECT_EQ(in_reply.code, ErrorCode::kMismatch);
  EXPECT_EQ(in_reply.message, expected);
}

TEST_F(ProducerAttachTest, RejectsOtherMagic) {
  const Error error =
      error_of_segment(segment([](ring::RingHeader& header) { header.magic ^= 1; }));
  EXPECT_EQ(error.code, ErrorCode::kMismatch);
  EXPECT_EQ(error.message,
            daemon_.socket() +
                ": not a ring of version 2: it does not start with STOKRING; attach to the control "
                "socket of a running stokerd");
}

TEST_F(ProducerAttachTest, RejectsMemoryWithoutSeals) {
  const auto bytes = ring::bytes_of(*ring_);
  for (const int seals : {0, F_SEAL_GROW, F_SEAL_SHRINK}) {
    const Error error = error_of_segment(bytes, seals);
    EXPECT_EQ(error.code, ErrorCode::kMismatch);
    EXPECT_THAT(error.message, HasSubstr("its memory is not sealed"));
  }
  EXPECT_EQ(error_of_segment(bytes).message, "attached");
}

TEST_F(ProducerAttachTest, RejectsMemoryThatCannotBeWritten) {
  const Error error =
      error_of_segment(ring::bytes_of(*ring_), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  EXPECT_EQ(error.code, ErrorCode::kMismatch);
  EXPECT_THAT(error.message, HasSubstr("map "));
}

TEST_F(ProducerAttachTest, RejectsOtherDescriptors) {
  daemon_.set_attach(0, 1, -1);
  EXPECT_THAT(attach_error().message, HasSubstr("the reply has no descriptor"));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd in(ends[0]), out(ends[1]);
  const UniqueFd device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  for (const int fd : {in.get(), out.get(), device.get(), file.get()}) {
    daemon_.set_attach(0, 1, fd);
    EXPECT_EQ(attach_error().code, ErrorCode::kMismatch);
  }
}

TEST_F(ProducerAttachTest, RejectsAnyTruncation) {
  const auto bytes = ring::bytes_of(*ring_);
  for (const size_t length :
       {size_t{0}, size_t{1}, size_t{8}, size_t{127}, sizeof(ring::RingHeader) - 1,
        sizeof(ring::RingHeader), sizeof(ring::RingHeader) + 100, size_t{4096}, bytes.size() - 4096,
        bytes.size() - 1})
    EXPECT_EQ(error_of_segment(std::span(bytes).first(length)).code, ErrorCode::kMismatch)
        << length;
  auto longer = bytes;
  longer.resize(bytes.size() + 4096);
  EXPECT_EQ(error_of_segment(longer).code, ErrorCode::kMismatch);
}

TEST_F(ProducerAttachTest, RejectsSameChangedBytesAsRing) {
  const auto good = ring::bytes_of(*ring_);
  int rejected = 0;
  for (size_t at = 0; at < sizeof(ring::RingHeader) + 2 * sizeof(ring::TensorRecord); ++at) {
    for (const int value : {0x00, 0x01, 0x05, 0x7f, 0x80, 0xff}) {
      auto bytes = good;
      bytes[at] = static_cast<std::byte>(value);
      const bool is_valid = internal::read_layout(bytes, "ring").ok();
      EXPECT_EQ(is_valid, ring::ShmRing::attach(ring::memfd_of(bytes)).ok())
          << at << " = " << value;
      if (!is_valid) ++rejected;
    }
  }
  EXPECT_GT(rejected, 1000);
}

TEST_F(ProducerAttachTest, NeverCrashesOnRandomHeadersAndTables) {
  std::mt19937_64 random(7);
  const auto good = ring::bytes_of(*ring_);
  int attached = 0;
  for (int round = 0; round < 300; ++round) {
    auto bytes = good;
    const bool changes_constants = round % 2 == 0;
    ring::RingHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    for (uint64_t changes = 1 + random() % 6; changes > 0; --changes)
      bytes[random() % (sizeof header + 2 * sizeof(ring::TensorRecord))] =
          static_cast<std::byte>(random());
    if (!changes_constants) {
      bytes = good;
      for (uint64_t at = offsetof(ring::RingHeader, next_ticket); at < sizeof header; ++at)
        if (random() % 16 == 0) bytes[at] = static_cast<std::byte>(random());
      for (uint64_t at = header.slot_table; at < header.payload; ++at)
        if (random() % 16 == 0) bytes[at] = static_cast<std::byte>(random());
      const uint64_t alive = uint64_t{1} << 32 | 1;
      std::memcpy(bytes.data() + header.producer_table, &alive, sizeof alive);
      std::memset(bytes.data() + offsetof(ring::RingHeader, closed), 0, 4);
    }
    daemon_.set_attach(0, 1, ring::memfd_of(bytes).get());
    auto producer = attach(daemon_.directory());
    if (!producer) continue;
    ++attached;
    auto batch = producer->claim(0ns);
    if (!batch) continue;
    fill(*producer, *batch, 1);
    (void)batch->publish();
  }
  EXPECT_GT(attached, 150);
}

// ---- Tensors

TEST_F(ProducerAttachTest, ReportsOtherTensors) {
  const Producer producer = attach_producer();
  const auto message = [](const auto& result) {
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    return result.error().message;
  };
  EXPECT_EQ(message(producer.tensor<float>("image")),
            "the ring has no tensor 'image', only input, label; configure data.train of the run "
            "accordingly");
  EXPECT_EQ(message(producer.tensor<double>("input")),
            "tensor 'input' of the ring, F32 [20], is not stored as the requested type; change "
            "data.train of the run or this program");
  EXPECT_EQ(message(producer.tensor<float>("input", {3, 10})),
            "tensor 'input' of the ring, F32 [20], has not the shape [3, 10]; change data.train of "
            "the run or this program");
  EXPECT_TRUE(producer.tensor<float>("input", {20}).ok());
  EXPECT_TRUE(producer.tensor<std::int64_t>("label", {}).ok());
  EXPECT_TRUE(producer.tensor<std::byte>("label").ok());
  ASSERT_EQ(producer.tensors().size(), 2u);
  EXPECT_EQ(producer.tensors()[0].row_bytes, 80u);
  EXPECT_EQ(to_string(producer.tensors()[1].dtype), "I64");
}

TEST_F(ProducerAttachTest, AcceptsEveryElementTypeAsItsOwnTypeOnly) {
  std::vector<TensorSpec> sample;
  for (uint32_t number = 1; number <= static_cast<uint32_t>(stoker::DType::kI16); ++number)
    sample.push_back({.name = std::string(stoker::to_string(static_cast<stoker::DType>(number))),
                      .dtype = static_cast<stoker::DType>(number),
                      .shape = {2, 3}});
  open({.slots = 2}, ring::BatchLayout(sample, 2));
  const Producer producer = attach_producer();
  const auto accepted = [&]<typename T>(T) {
    std::string names;
    for (const TensorInfo& info : producer.tensors())
      if (producer.tensor<T>(info.name)) names += info.name + ' ';
    return names;
  };
  EXPECT_EQ(accepted(uint8_t{}), "U8 ");
  EXPECT_EQ(accepted(int8_t{}), "I8 ");
  EXPECT_EQ(accepted(bool{}), "BOOL ");
  EXPECT_EQ(accepted(uint16_t{}), "U16 F16 BF16 ");
  EXPECT_EQ(accepted(int16_t{}), "I16 ");
  EXPECT_EQ(accepted(int32_t{}), "I32 ");
  EXPECT_EQ(accepted(int64_t{}), "I64 ");
  EXPECT_EQ(accepted(float{}), "F32 ");
  EXPECT_EQ(accepted(double{}), "F64 ");
  EXPECT_EQ(accepted(uint32_t{}), "");
}

}  // namespace
}  // namespace stoker::producer
