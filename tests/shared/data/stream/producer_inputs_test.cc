#include "shared/data/stream/producer_inputs.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/stream/producer_handshake.h"
#include "shared/data/stream/producer_history.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/stream/producer_client.h"
#include "tests/shared/data/stream/stream_fixture.h"

namespace stoker::data::stream {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::hello;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ProducerClient;
using ::testing::SizeIs;

// ---- Handshake

TEST(ProducerHandshakeTest, ReadsNameAndOptions) {
  const auto plain = parse_hello(R"({"format":1,"name":"simulator-3"})");
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  EXPECT_EQ(plain->name, "simulator-3");
  EXPECT_TRUE(plain->can_replay);
  EXPECT_FALSE(plain->ends_stream);
  EXPECT_FALSE(parse_hello(R"({"format":1,"name":"a","replay":false})")->can_replay);
  EXPECT_TRUE(parse_hello(R"({"format":1,"end":true})")->ends_stream);
}

TEST(ProducerHandshakeTest, RejectsOtherFormatWithBothVersions) {
  const Status status = parse_hello(R"({"format":2,"name":"a","zip":true})").status();
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("format 2"), HasSubstr("supports format 1")));
}

TEST(ProducerHandshakeTest, RejectsInvalidLines) {
  const std::string long_name(kMaxProducerName + 1, 'a');
  const std::vector<std::string> lines{"",
                                       "GET / HTTP/1.1\r",
                                       "[1]",
                                       "{}",
                                       R"({"format":1})",
                                       R"({"format":"1","name":"a"})",
                                       R"({"format":1,"name":""})",
                                       R"({"format":1,"name":"a/b"})",
                                       R"({"format":1,"name":"a\n"})",
                                       R"({"format":1,"name":7})",
                                       R"({"format":1,"name":"a","replay":1})",
                                       R"({"format":1,"name":"a","end":true})",
                                       R"({"format":1,"end":false})",
                                       R"({"format":1,"name":"a","x":1})",
                                       R"({"format":1,"name":")" + long_name + "\"}",
                                       "\xff\xfe"};
  for (const std::string& line : lines) EXPECT_FALSE(parse_hello(line).ok()) << line;
}

// ---- History

class ProducerHistoryTest : public ::testing::Test {
 protected:
  static constexpr size_t kCapacity = 256;

  void append(const std::string& name, uint64_t offset, const std::string& text) const {
    history_.append(name, offset, std::as_bytes(std::span(text)));
  }
  std::string text_of(const ProducerHistory::Part& part) const {
    std::string text(part.bytes, '?');
    EXPECT_TRUE(history_.copy(part.at, std::as_writable_bytes(std::span(text))));
    return text;
  }
  std::string all_of(const std::string& name) const {
    const auto known = history_.by_name();
    std::string text;
    for (const auto& part : known.at(name)) text += text_of(part);
    return text;
  }

  std::vector<uint64_t> memory_ =
      std::vector<uint64_t>((ByteHistory::kHeaderBytes + kCapacity) / sizeof(uint64_t));
  const ByteHistory bytes_{std::as_writable_bytes(std::span(memory_))};
  const ProducerHistory history_{bytes_};
};

TEST_F(ProducerHistoryTest, HoldsBytesByName) {
  append("a", 0, "one ");
  append("b", 100, "other");
  append("a", 4, "two");
  EXPECT_EQ(all_of("a"), "one two");
  EXPECT_EQ(all_of("b"), "other");
  EXPECT_EQ(history_.by_name()["b"].front().offset, 100u);
}

TEST_F(ProducerHistoryTest, ReplacesWhatIsSentAgain) {
  append("a", 0, "complete, inc");
  append("a", 10, "complete again");
  EXPECT_EQ(all_of("a"), "complete, complete again");
  append("a", 0, "new");
  EXPECT_EQ(all_of("a"), "new");
}

TEST_F(ProducerHistoryTest, DiscardsOldestPartsWhole) {
  for (uint64_t i = 0; i < 50; ++i)
    append("a", i * 10, std::string(10, static_cast<char>('a' + i % 26)));
  const auto parts = history_.by_name()["a"];
  ASSERT_THAT(parts, SizeIs(kCapacity / (16 + 1 + 10)));
  EXPECT_EQ(parts.back().end(), 500u);
  EXPECT_EQ(parts.front().offset, 500 - 10 * parts.size());
  EXPECT_EQ(text_of(parts.back()), std::string(10, static_cast<char>('a' + 49 % 26)));
  append("b", 0, std::string(kCapacity, 'x'));  // larger than the memory
  EXPECT_THAT(history_.by_name(), SizeIs(1));
}

TEST_F(ProducerHistoryTest, CopiesNeededParts) {
  append("a", 0, "one");
  append("b", 0, "two");
  append("a", 3, "three");
  const auto copy = history_.copy_needed([](const auto& part) { return part.name == "a"; });
  bytes_.assign(0, copy, copy.size());
  EXPECT_THAT(history_.by_name(), SizeIs(1));
  EXPECT_EQ(all_of("a"), "onethree");
}

// As when a run is resumed with a smaller save_elements_mib.
TEST_F(ProducerHistoryTest, AssignsLastWholePartsThatFit) {
  std::vector<uint64_t> large_memory((ByteHistory::kHeaderBytes + 1024) / sizeof(uint64_t));
  const ProducerHistory large(ByteHistory(std::as_writable_bytes(std::span(large_memory))));
  for (uint64_t i = 0; i < 10; ++i) {
    const std::string text(40, static_cast<char>('0' + i));
    large.append(i % 2 == 0 ? "a" : "b", i / 2 * 40, std::as_bytes(std::span(text)));
  }
  const auto parts = large.copy_needed([](const auto&) { return true; });
  ASSERT_GT(parts.size(), kCapacity);
  history_.assign(parts);
  EXPECT_EQ(all_of("a"), std::string(40, '6') + std::string(40, '8'));
  EXPECT_EQ(all_of("b"), std::string(40, '7') + std::string(40, '9'));
  EXPECT_EQ(history_.by_name()["a"].front().offset, 120u);
  append("a", 200, std::string(40, 'x'));
  EXPECT_EQ(all_of("a"), std::string(40, '8') + std::string(40, 'x'));
  history_.assign(std::span(parts).first(parts.size() - 1));  // truncated
  history_.assign(std::vector<std::byte>(2 * kCapacity, std::byte{0xff}));
  EXPECT_TRUE(history_.by_name().empty());
}

TEST_F(ProducerHistoryTest, HasEndOfStreamUntilMoreIsSent) {
  const std::string end(ProducerHistory::kEndOfStream);
  append("a", 0, "one");
  append("a", 3, "");
  append(end, 0, "");
  auto known = history_.by_name();
  EXPECT_TRUE(known.contains(end));
  EXPECT_EQ(all_of("a"), "one");
  EXPECT_EQ(known["a"].back().end(), 3u);
  append("a", 3, " two");
  EXPECT_FALSE(history_.by_name().contains(end));
  EXPECT_EQ(all_of("a"), "one two");
}

TEST_F(ProducerHistoryTest, CopiesEndOfStreamUntilMoreIsSent) {
  const std::string end(ProducerHistory::kEndOfStream);
  const auto copy_none = [&] { return history_.copy_needed([](const auto&) { return false; }); };
  append("a", 0, "one");
  append("a", 3, "");
  EXPECT_THAT(copy_none(), IsEmpty());
  for (int times = 0; times < 2; ++times) {  // also by a later process
    append("a", 3, "");
    append("b", 7, "");
    append(end, 0, "");
  }
  const auto ended = copy_none();
  append("a", 3, " two");
  EXPECT_THAT(copy_none(), IsEmpty());
  history_.assign(ended);
  auto known = history_.by_name();
  ASSERT_THAT(known, SizeIs(3));
  EXPECT_TRUE(known.contains(end));
  EXPECT_EQ(known["a"].front().offset, 3u);
  EXPECT_EQ(known["b"].front().offset, 7u);
  EXPECT_THAT(ended, SizeIs(3 * 16 + 2));
}

// Of producers that were disconnected, which later ones must not inherit.
TEST_F(ProducerHistoryTest, HasEndsOfProducersUntilTheyAreForgotten) {
  append("a", 0, "one");
  append("a", 3, "");
  append("b", 0, "two");
  EXPECT_EQ(history_.by_name()["a"].back().bytes, 0u);
  EXPECT_GT(history_.by_name()["b"].back().bytes, 0u);
  history_.assign(history_.copy_needed([](const auto&) { return true; }, /*with_ends=*/true));
  EXPECT_EQ(history_.by_name()["a"].back().bytes, 0u);
  EXPECT_EQ(all_of("a") + all_of("b"), "onetwo");
  history_.forget_ends();
  EXPECT_GT(history_.by_name()["a"].back().bytes, 0u);
  EXPECT_EQ(all_of("a") + all_of("b"), "onetwo");
}

TEST_F(ProducerHistoryTest, IgnoresInvalidParts) {
  append("a", 0, "one");
  const uint64_t end = bytes_.range().end;
  for (const uint64_t size :
       {uint64_t{0xffff'ffff}, uint64_t{0xffff'ffff'0000'0001}, uint64_t{200} << 32}) {
    const std::vector<uint64_t> head{size, 0};
    bytes_.append(std::as_bytes(std::span(head)));
    EXPECT_EQ(all_of("a"), "one");
    EXPECT_FALSE(history_.copy_needed([](const auto&) { return true; }).empty());
    std::vector<std::byte> valid(end);
    ASSERT_TRUE(bytes_.copy(0, valid));
    bytes_.assign(0, valid, end);
  }
  bytes_.append(std::vector<std::byte>(100, std::byte{0xff}));
  for (int i = 0; i < 20; ++i) append("b", static_cast<uint64_t>(i) * 40, std::string(40, 'b'));
  EXPECT_EQ(history_.by_name()["b"].back().end(), 800u);
}

// ---- Connections

class ProducerInputsTest : public data::testing::FolderFixture {
 protected:
  void open(ProducerOptions options = {}, std::vector<KnownProducer> known = {},
            std::optional<ByteHistory> maybe_history = std::nullopt) {
    inputs_ = make_producer_inputs(testing::listen_at(socket()), std::move(options), maybe_history,
                                   std::move(known));
  }
  std::string socket() const { return path("producers.sock"); }
  // The name of the next input; empty at the end.
  std::string next() {
    const auto item = inputs_->next({});
    EXPECT_TRUE(item.ok()) << item.status().to_string();
    return item && *item ? (*item)->name : "";
  }
  std::unique_ptr<ByteInput> open_input(const std::string& name, const StreamPosition& from = {}) {
    auto input = inputs_->open(name, from);
    EXPECT_TRUE(input.ok()) << input.status().to_string();
    return *std::move(input);
  }
  // Accepts connections until the end of the block.
  class Accepting {
   public:
    explicit Accepting(StreamInputs& inputs)
        : thread_([&inputs](const std::stop_token& stop) { (void)inputs.next(stop); }) {}

   private:
    std::jthread thread_;
  };

  std::unique_ptr<StreamInputs> inputs_;
};

TEST_F(ProducerInputsTest, RepliesWithOffsetWhenReaderIsFree) {
  open();
  ProducerClient client(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  EXPECT_EQ(client.read_line(0ms), "");
  const auto input = open_input("a", {.offset = 100, .record = 7});
  EXPECT_EQ(client.read_line(), R"({"format":1,"offset":100,"records":7})");
  EXPECT_THAT(input->name(),
              HasSubstr("producer a (process " + std::to_string(::getpid()) + ", data_stream"));
  client.send("bytes");
  client.close();
  EXPECT_EQ(testing::read_rest(*input).bytes, "bytes");
}

TEST_F(ProducerInputsTest, ReadsBytesThatFollowFirstLine) {
  open();
  ProducerClient client(socket(), hello("a", false) + "first ");
  client.send("second");
  client.close();
  EXPECT_EQ(next(), "a");
  const auto input = open_input("a");
  EXPECT_EQ(testing::read_rest(*input).bytes, "first second");
  EXPECT_EQ(input->identity(), 0u);
}

TEST_F(ProducerInputsTest, ContinuesNameAfterItWasClosed) {
  open();
  ProducerClient first(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  auto input = open_input("a");
  first.close();
  EXPECT_EQ(testing::read_rest(*input).bytes, "");
  inputs_->close("a", {.offset = 5, .record = 1}, {});
  ProducerClient second(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  input = open_input("a", {.offset = 5, .record = 1});
  EXPECT_EQ(second.read_offset(), 5u);
}

TEST_F(ProducerInputsTest, AcknowledgesWhatWasTaken) {
  open();
  ProducerClient client(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  auto input = open_input("a");
  EXPECT_EQ(client.read_offset(), 0u);
  client.send("bytes");
  client.finish();
  EXPECT_EQ(testing::read_rest(*input).bytes, "bytes");
  input.reset();
  EXPECT_EQ(client.read_line(0ms), "");
  inputs_->close("a", {.offset = 5, .record = 1}, {});
  EXPECT_EQ(client.read_line(), R"({"format":1,"offset":5,"records":1})");
  EXPECT_TRUE(client.has_ended());
}

// It would send them again without end.
TEST_F(ProducerInputsTest, RejectsReplayOfInvalidBytes) {
  open();
  for (const bool can_replay : {true, false}) {
    const std::string name = can_replay ? "a" : "b";
    ProducerClient first(socket(), hello(name, can_replay));
    EXPECT_EQ(next(), name);
    auto input = open_input(name);
    EXPECT_EQ(first.read_offset(), 0u);
    first.send("garbage");
    first.finish();
    EXPECT_EQ(testing::read_rest(*input).bytes, "garbage");
    input.reset();
    inputs_->close(name, {.offset = 3, .record = 1}, Status(StatusCode::kCorrupt, "no length"));
    EXPECT_THAT(first.read_line(),
                AllOf(HasSubstr("from offset 3 on"), HasSubstr("no length"),
                      HasSubstr(can_replay ? "\"retry\":false" : "\"retry\":true")));
  }
  ProducerClient replaying(socket(), hello("a"));
  ProducerClient other(socket(), hello("b", false));
  EXPECT_EQ(next(), "b");
  EXPECT_THAT(replaying.read_line(),
              AllOf(HasSubstr("use another name"), HasSubstr("\"retry\":false")));
  // Another record follows, and replaces them.
  ProducerClient continuing(socket(), hello("a", false));
  EXPECT_EQ(next(), "a");
  auto input = open_input("a", {.offset = 3, .record = 1});
  continuing.close();
  input.reset();
  inputs_->close("a", {.offset = 8, .record = 2}, {});
  ProducerClient again(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
}

// A rejected connection takes no name away.
TEST_F(ProducerInputsTest, KeepsNameOfRejectedConnectionFree) {
  open({.max_names = 2, .max_waiting = 1});
  ProducerClient a(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  {
    const Accepting accepting(*inputs_);
    EXPECT_THAT(ProducerClient(socket(), hello("b")).read_line(),
                HasSubstr("too many producers wait"));
  }
  const auto input = open_input("a");
  ProducerClient c(socket(), hello("c"));
  EXPECT_EQ(next(), "c");
}

TEST_F(ProducerInputsTest, RejectsSecondConnectionOfName) {
  open();
  ProducerClient first(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  const auto input = open_input("a");
  const Accepting accepting(*inputs_);
  ProducerClient second(socket(), hello("a"));
  EXPECT_THAT(second.read_line(),
              AllOf(HasSubstr("producer a is connected already"), HasSubstr("\"retry\":true")));
  EXPECT_TRUE(second.has_ended());
  EXPECT_EQ(first.read_offset(), 0u);
}

// Of a producer that was killed and started again, before its end was read.
TEST_F(ProducerInputsTest, LetsConnectionWaitForClosedOneOfSameName) {
  open();
  ProducerClient first(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  const auto input = open_input("a");
  first.send("bytes");
  first.close();
  ProducerClient second(socket(), hello("a"));
  {
    const Accepting accepting(*inputs_);
    EXPECT_EQ(second.read_line(50ms), "");
  }
  EXPECT_EQ(testing::read_rest(*input).bytes, "bytes");
  inputs_->close("a", {.offset = 5, .record = 1}, {});
  EXPECT_EQ(next(), "a");
  const auto continued = open_input("a", {.offset = 5, .record = 1});
  EXPECT_EQ(second.read_offset(), 5u);
}

TEST_F(ProducerInputsTest, RejectsInvalidFirstLinesAndAcceptsOthers) {
  open();
  const std::vector<std::pair<std::string, std::string>> cases{
      {"garbage\n", "must be a JSON object"},
      {"{\"format\":3,\"name\":\"a\"}\n",
       "format 3 is not supported; this stokerd supports format 1"},
      {std::string(kMaxHelloBytes, 'x'), "has more than 4096 bytes"},
      {std::string(kMaxHelloBytes, ' ') + hello("a"), "has more than 4096 bytes"}};
  std::vector<std::unique_ptr<ProducerClient>> clients;
  for (const auto& [line, error] : cases)
    clients.push_back(std::make_unique<ProducerClient>(socket(), line));
  ProducerClient closed(socket(), "{\"format\"");
  closed.close();
  ProducerClient valid(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_THAT(
        clients[i]->read_line(),
        AllOf(HasSubstr("\"format\":1"), HasSubstr(cases[i].second), HasSubstr("\"retry\":false")));
    EXPECT_TRUE(clients[i]->has_ended());
  }
}

// They do not delay each other.
TEST_F(ProducerInputsTest, AcceptsProducersWhileOthersAreSilent) {
  open({.max_hellos = 4});
  std::vector<std::unique_ptr<ProducerClient>> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(std::make_unique<ProducerClient>(socket(), "{"));
  ProducerClient client(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  silent[1]->send(hello("b").substr(1));
  EXPECT_EQ(next(), "b");
}

TEST_F(ProducerInputsTest, AcceptsProducerWhileMoreThanPermittedAreSilent) {
  open({.hello_timeout = 1h, .max_hellos = 4});
  std::vector<std::unique_ptr<ProducerClient>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<ProducerClient>(socket(), "{"));
  ProducerClient client(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  EXPECT_THAT(silent.front()->read_line(), HasSubstr("too many others connect"));
}

TEST_F(ProducerInputsTest, ClosesSilentConnectionsAfterTimeout) {
  open({.hello_timeout = 1ms, .max_hellos = 2});
  ProducerClient first(socket(), "{");
  ProducerClient second(socket());
  const Accepting accepting(*inputs_);
  for (ProducerClient* const client : {&first, &second}) {
    EXPECT_THAT(client->read_line(), HasSubstr("no first line"));
    EXPECT_TRUE(client->has_ended());
  }
}

TEST_F(ProducerInputsTest, LimitsNames) {
  open({.max_names = 2});
  ProducerClient a(socket(), hello("a"));
  ProducerClient b(socket(), hello("b"));
  EXPECT_EQ(next(), "a");
  EXPECT_EQ(next(), "b");
  const Accepting accepting(*inputs_);
  ProducerClient c(socket(), hello("c"));
  EXPECT_THAT(c.read_line(), HasSubstr("the stream has 2 producers"));
}

TEST_F(ProducerInputsTest, LimitsConnectionsThatWaitForReader) {
  open({.max_waiting = 2});
  ProducerClient a(socket(), hello("a"));
  ProducerClient b(socket(), hello("b"));
  EXPECT_EQ(next(), "a");
  EXPECT_EQ(next(), "b");
  const Accepting accepting(*inputs_);
  ProducerClient c(socket(), hello("c"));
  const std::string line = c.read_line();
  EXPECT_THAT(line, HasSubstr("too many producers wait"));
  EXPECT_THAT(line, HasSubstr("\"retry\":true"));
}

// From many small parts, as a producer sends them that writes record by record.
TEST_F(ProducerInputsTest, ReadsHistoryOfManyParts) {
  std::vector<uint64_t> memory(1 << 17);
  const ByteHistory history(std::as_writable_bytes(std::span(memory)));
  std::string sent;
  for (int i = 0; i < 10000; ++i) {
    const std::string record = std::to_string(i) + "\n";
    ProducerHistory(history).append("a", sent.size(), std::as_bytes(std::span(record)));
    sent += record;
  }
  const auto parts = ProducerHistory(history).by_name();
  EXPECT_EQ(parts.at("a").size(), 10000u);
  inputs_ = make_producer_inputs(testing::listen_at(socket()), {}, history,
                                 {{.name = "a", .next = {}, .can_replay = true}});
  EXPECT_EQ(next(), "a");
  EXPECT_EQ(testing::read_rest(*open_input("a")).bytes, sent);
}

TEST_F(ProducerInputsTest, EndsAfterProducersThatAreConnected) {
  open();
  ProducerClient silent(socket(), "{");
  ProducerClient a(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  ProducerClient end(socket(), testing::kEndOfStream);
  EXPECT_EQ(next(), "");
  EXPECT_THAT(silent.read_line(), HasSubstr("the stream has ended"));
  const auto input = open_input("a");
  EXPECT_EQ(a.read_offset(), 0u);
  a.send("bytes");
  a.close();
  EXPECT_EQ(testing::read_rest(*input).bytes, "bytes");
  EXPECT_EQ(end.read_line(0ms), "");
  ProducerClient second(socket(), testing::kEndOfStream);
  ProducerClient late(socket(), hello("b"));
  inputs_->close("a", {.offset = 5, .record = 1}, {});
  EXPECT_EQ(end.read_line(), R"({"format":1,"end":true})");
  EXPECT_EQ(second.read_line(), R"({"format":1,"end":true})");
  EXPECT_THAT(late.read_line(), HasSubstr("the stream has ended"));
}

TEST_F(ProducerInputsTest, StopsWhileItWaits) {
  open();
  std::stop_source stop;
  auto waiting = std::async(std::launch::async,
                            [&] { return inputs_->next(stop.get_token()).status().code(); });
  EXPECT_TRUE(testing::eventually([&] { return inputs_->is_waiting(); }));
  stop.request_stop();
  EXPECT_EQ(waiting.get(), StatusCode::kCancelled);
  EXPECT_GT(inputs_->polls(), 0u);
}

// A connection of another user, of which the socket file permits all.
TEST_F(ProducerInputsTest, RejectsUserWithoutPermission) {
  if (::geteuid() != 0) GTEST_SKIP() << "requires root";
  constexpr uid_t kUnprivileged = 65534;
  for (const bool is_permitted : {false, true}) {
    open({.users = is_permitted ? std::vector<uid_t>{kUnprivileged} : std::vector<uid_t>()});
    for (std::string parent = path(""); parent.size() > 5;
         parent = parent.substr(0, parent.rfind('/')))
      (void)::chmod(parent.c_str(), 0755);
    ASSERT_EQ(::chmod(socket().c_str(), 0666), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresuid(kUnprivileged, kUnprivileged, kUnprivileged) != 0) ::_exit(2);
      ProducerClient client(socket(), hello("a"));
      ::_exit(client.read_offset() ? 0 : 1);
    }
    std::stop_source stop;
    std::jthread reader([&] {
      const auto item = inputs_->next(stop.get_token());
      if (item && *item) (void)inputs_->open((*item)->name, {});
    });
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    stop.request_stop();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), is_permitted ? 0 : 1);
  }
}

// ---- Continuing

class ContinuedProducersTest : public ProducerInputsTest {
 protected:
  void save(const std::string& name, uint64_t offset, const std::string& text) const {
    ProducerHistory(history_).append(name, offset, std::as_bytes(std::span(text)));
  }

  std::vector<uint64_t> memory_ = std::vector<uint64_t>(1024);
  const ByteHistory history_{std::as_writable_bytes(std::span(memory_))};
};

TEST_F(ContinuedProducersTest, ReadsSavedBytesBeforeConnection) {
  save("a", 10, "saved");
  open({}, {{.name = "a", .next = {.offset = 12, .record = 1}, .can_replay = true}}, history_);
  ProducerClient client(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  auto input = open_input("a", {.offset = 12, .record = 1});
  EXPECT_EQ(testing::read_rest(*input).bytes, "ved");
  EXPECT_EQ(input->identity(), kReplayingProducer);
  // The connection waits until they are in the queue.
  {
    const Accepting accepting(*inputs_);
    EXPECT_EQ(client.read_line(50ms), "");
  }
  inputs_->close("a", {.offset = 5, .record = 1}, {});
  EXPECT_EQ(next(), "a");
  input = open_input("a", {.offset = 14, .record = 2});
  EXPECT_EQ(client.read_offset(), 14u);
}

TEST_F(ContinuedProducersTest, ReportsNoLossOfWhatIsSentAgain) {
  save("a", 7, "other");  // its first bytes were discarded
  ::testing::internal::CaptureStderr();
  open({}, {}, history_);
  ProducerClient a(socket(), hello("a", true));
  EXPECT_EQ(next(), "a");
  const auto input = open_input("a");
  EXPECT_EQ(a.read_offset(), 0u);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("history too small")));
}

TEST_F(ContinuedProducersTest, ReadsElementsAgainBeforeFirstInput) {
  save("a", 0, "one two three");
  open({}, {{.name = "a", .next = {.offset = 13, .record = 3}}}, history_);
  EXPECT_EQ(testing::read_rest(*open_input("a", {.offset = 4, .record = 1})).bytes, "two three");
  EXPECT_EQ(testing::read_rest(*open_input("b")).bytes, "");
}

TEST_F(ContinuedProducersTest, ReadsBytesFromBeforeFirstBatch) {
  save("a", 0, "one");
  save("b", 7, "other");  // its first bytes were discarded
  ::testing::internal::CaptureStderr();
  open({}, {}, history_);
  EXPECT_EQ(next(), "a");
  EXPECT_EQ(testing::read_rest(*open_input("a")).bytes, "one");
  ProducerClient b(socket(), hello("b", false));
  EXPECT_EQ(next(), "b");
  const auto input = open_input("b");
  EXPECT_EQ(b.read_offset(), 0u);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("stream history too small source=\"producer b\" offset=0 "));
  EXPECT_THAT(log, HasSubstr("stream records possibly lost producer=b after_record=0 "));
}

// As after a crash of the worker process that has ended the stream.
TEST_F(ContinuedProducersTest, HasEndedIfAllThatWasSentIsSaved) {
  open({}, {}, history_);
  ProducerClient a(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  auto input = open_input("a");
  a.send("one two");
  a.close();
  EXPECT_EQ(testing::read_rest(*input).bytes, "one two");
  input.reset();
  inputs_->close("a", {.offset = 7, .record = 2}, {});
  ProducerClient end(socket(), testing::kEndOfStream);
  EXPECT_EQ(next(), "");
  EXPECT_EQ(end.read_line(), R"({"format":1,"end":true})");
  for (int crash = 0; crash < 2; ++crash) {
    open({}, {{.name = "a", .next = {.offset = 4, .record = 1}}}, history_);
    EXPECT_EQ(next(), "a");
    EXPECT_EQ(testing::read_rest(*open_input("a", {.offset = 4, .record = 1})).bytes, "two");
    EXPECT_EQ(next(), "");
    inputs_->close("a", {.offset = 7, .record = 2}, {});
    open({}, {{.name = "a", .next = {.offset = 7, .record = 2}}}, history_);
    EXPECT_EQ(next(), "");
  }
}

// As when training continues in another segment, which has only what it needs.
TEST_F(ContinuedProducersTest, HasEndedAfterCopyOfWhatIsNeeded) {
  open({}, {}, history_);
  ProducerClient a(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  auto input = open_input("a");
  a.send("one");
  a.close();
  EXPECT_EQ(testing::read_rest(*input).bytes, "one");
  inputs_->close("a", {.offset = 3, .record = 1}, {});
  ProducerClient end(socket(), testing::kEndOfStream);
  EXPECT_EQ(next(), "");
  const ProducerHistory history(history_);
  for (int segment = 0; segment < 2; ++segment) {
    history.assign(history.copy_needed([](const auto& part) { return part.end() > 3; }));
    open({}, {{.name = "a", .next = {.offset = 3, .record = 1}}}, history_);
    EXPECT_EQ(next(), "");
  }
}

TEST_F(ContinuedProducersTest, HasEndedIfProducerHasSentNothing) {
  open({}, {}, history_);
  ProducerClient a(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  auto input = open_input("a");
  a.close();
  EXPECT_EQ(testing::read_rest(*input).bytes, "");
  inputs_->close("a", {}, {});
  ProducerClient end(socket(), testing::kEndOfStream);
  EXPECT_EQ(next(), "");
  open({}, {{.name = "a", .next = {}}}, history_);
  EXPECT_EQ(next(), "");
}

TEST_F(ContinuedProducersTest, HasNotEndedIfSomethingThatWasSentIsNotSaved) {
  save("a", 100, "three");  // the first bytes were discarded
  save("a", 105, "");
  save(std::string(ProducerHistory::kEndOfStream), 0, "");
  for (const uint64_t next_offset : {0, 99}) {
    open({}, {{.name = "a", .next = {.offset = next_offset, .record = 1}}}, history_);
    ProducerClient a(socket(), hello("a"));
    EXPECT_EQ(next(), "a");
  }
  open({}, {}, history_);
  ProducerClient a(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  // A producer of which nothing is saved any more.
  open({}, {{.name = "a", .next = {.offset = 105}}, {.name = "b", .next = {}}}, history_);
  ProducerClient b(socket(), hello("b"));
  EXPECT_EQ(next(), "b");
}

// The process that ended it has crashed before that.
TEST_F(ContinuedProducersTest, HasNotEndedIfProducersWereConnected) {
  open({}, {}, history_);
  ProducerClient a(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  const auto input = open_input("a");
  ProducerClient end(socket(), testing::kEndOfStream);
  EXPECT_EQ(next(), "");
  a.send("one");
  a.finish();
  EXPECT_EQ(testing::read_rest(*input).bytes, "one");
  open({}, {{.name = "a", .next = {.offset = 3}}}, history_);
  EXPECT_TRUE(end.has_ended());
  ProducerClient again(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
}

// As at the end of a worker process.
TEST_F(ContinuedProducersTest, SavesWhatCannotBeSentAgain) {
  for (const bool can_replay : {false, true}) {
    memory_.assign(memory_.size(), 0);
    open({}, {}, history_);
    ProducerClient client(socket(), hello("a", can_replay) + "one");
    EXPECT_EQ(next(), "a");
    const auto input = open_input("a");
    EXPECT_EQ(client.read_offset(), 0u);
    client.send(" two");
    inputs_->save_unread();
    EXPECT_EQ(client.send("three"), can_replay) << "it must not believe that this arrives";
    open({}, {}, history_);
    EXPECT_EQ(next(), "a");
    const std::string saved = testing::read_rest(*open_input("a")).bytes;
    EXPECT_EQ(saved, can_replay ? "one" : "one two");
    inputs_->close("a", {.offset = saved.size(), .record = 2}, {});
    ProducerClient again(socket(), hello("a", can_replay));
    EXPECT_EQ(next(), "a");
    ::testing::internal::CaptureStderr();
    (void)open_input("a", {.offset = saved.size(), .record = 2});
    EXPECT_EQ(again.read_offset(), saved.size());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("lost")));
  }
}

TEST_F(ContinuedProducersTest, LogsPossibleLossUnlessAllIsSaved) {
  const auto log_of_connection = [&] {
    open({}, {{.name = "a", .next = {.offset = 3, .record = 1}}}, history_);
    ProducerClient a(socket(), hello("a", false));
    EXPECT_EQ(next(), "a");
    ::testing::internal::CaptureStderr();
    const auto input = open_input("a", {.offset = 3, .record = 1});
    return ::testing::internal::GetCapturedStderr();
  };
  save("a", 0, "one");
  EXPECT_THAT(log_of_connection(),
              HasSubstr("stream records possibly lost producer=a after_record=1 "));
  save("a", 3, "");
  EXPECT_THAT(log_of_connection(), Not(HasSubstr("lost")));
}

TEST_F(ContinuedProducersTest, SavesWhatIsReceived) {
  open({}, {}, history_);
  ProducerClient client(socket(), hello("a"));
  EXPECT_EQ(next(), "a");
  const auto input = open_input("a", {.offset = 100, .record = 9});
  client.send("bytes");
  client.close();
  EXPECT_EQ(testing::read_rest(*input).bytes, "bytes");
  const auto saved = ProducerHistory(history_).by_name();
  ASSERT_THAT(saved, SizeIs(1));
  EXPECT_EQ(saved.at("a").front().offset, 100u);
  EXPECT_EQ(saved.at("a").back().end(), 105u);
}

}  // namespace
}  // namespace stoker::data::stream
