#include "ctl/install_service.h"

#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kUnit = R"(# trains with /etc/stoker/NAME.yaml
[Unit]
AssertPathExists=/etc/stoker/%i.yaml
# Device nodes.
Wants=modprobe@nvidia_uvm.service

[Service]
ExecStart=/usr/local/bin/stokerd --config /etc/stoker/%i.yaml --run-dir %S/stoker/%i
Slice=system-stoker.slice
User=stoker
Group=stoker
StateDirectory=stoker/%i
NoNewPrivileges=yes
# Data under /home are not visible.
ProtectHome=yes

[Install]
WantedBy=multi-user.target
)";

TEST(InstallServiceTest, KeepsSystemUnitExceptProgram) {
  std::string expected = kUnit;
  expected.replace(expected.find("/usr/local/bin/"), 15, "/opt/env/bin/");
  EXPECT_EQ(adapt_unit(kUnit, {.programs = "/opt/env/bin", .user = "stoker"}),
            "# Written by stokerctl install-service.\n" + expected);
}

TEST(InstallServiceTest, ReadsHomeAsAnotherUser) {
  const std::string unit =
      adapt_unit(kUnit, {.programs = "/home/ann/env/bin", .user = "ann", .in_home = true});
  EXPECT_THAT(unit, AllOf(HasSubstr("\nProtectHome=read-only\n"), HasSubstr("\nUser=ann\n"),
                          Not(HasSubstr("Group="))));
}

// A user's service manager cannot change users or make namespaces, and knows none of the system's units.
TEST(InstallServiceTest, OmitsWhatUserUnitCannotHave) {
  EXPECT_EQ(adapt_unit(kUnit, {.programs = "/home/ann/env/bin", .user_units = true}),
            R"(# Written by stokerctl install-service.
[Unit]
AssertPathExists=%E/stoker/%i.yaml

[Service]
ExecStart=/home/ann/env/bin/stokerd --config %E/stoker/%i.yaml --run-dir %h/.local/state/stoker/%i
NoNewPrivileges=yes

[Install]
WantedBy=default.target
)");
}

TEST_F(CtlTest, InstallServiceNamesWhatIsMissing) {
  // The test program is in no installed tree.
  const CommandResult result =
      run_with_arguments({"install-service", "--user", "--output", root_ / "units"});
  EXPECT_EQ(result.code, 78) << result.err;
  EXPECT_THAT(result.err, HasSubstr(" has no stokerd\n"));
  EXPECT_EQ(run_with_arguments({"install-service", "--user", "--service-user", "ann"}).code, 64);
  EXPECT_EQ(run_with_arguments({"--json", "install-service"}).code, 64);
}

}  // namespace
}  // namespace stoker::ctl
