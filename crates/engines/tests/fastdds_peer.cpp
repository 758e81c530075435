// A program of DDS for tests/dds/fastdds.rs: Fast DDS 2, on loopback without multicast. It ends when its input does, and
// after 30 s at the latest.
//
// fastdds_peer pub|sub DOMAIN TOPIC TYPE named|described reliable|best-effort volatile|transient-local DEPTH WRITERS COUNT
//
// TYPE is a struct of one string; others are told its name alone, or its structure, too. A DEPTH of 0 keeps all.
// pub: each of WRITERS writes COUNT samples, "sample 0" …, numbered on by the next one; at once if it keeps them for late joiners, else
// when a reader has matched. sub: prints what comes. Both print "ready" first, and a policy that does not match.
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastrtps/types/DynamicData.h>
#include <fastrtps/types/DynamicPubSubType.h>
#include <fastrtps/types/DynamicTypeBuilder.h>
#include <fastrtps/types/DynamicTypeBuilderFactory.h>
#include <fastrtps/types/DynamicTypeBuilderPtr.h>
#include <fastrtps/types/DynamicTypePtr.h>
#include <fastrtps/utils/IPLocator.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace eprosima::fastdds::dds;
using namespace eprosima::fastrtps::types;

static TypeSupport struct_of_text(const char* name, bool described) {
    auto* types = DynamicTypeBuilderFactory::get_instance();
    DynamicTypeBuilder_ptr text = types->create_struct_builder();
    text->set_name(name);
    text->add_member(0, "data", types->create_string_type());
    TypeSupport type(new DynamicPubSubType(text->build()));
    type->auto_fill_type_object(described);
    type->auto_fill_type_information(described);
    return type;
}

// True at the end of the input; waits for it up to 1 ms.
static bool ended() {
    pollfd input{0, POLLIN, 0};
    return poll(&input, 1, 1) != 0;
}

static void tell(const IncompatibleQosStatus& status) {
    if (status.total_count_change == 0) return;
    std::puts(status.last_policy_id == RELIABILITY_QOS_POLICY_ID ? "incompatible reliability" : "incompatible");
}

template <typename Qos>
static void set(Qos& qos, char** policies) {
    bool reliable = std::string(policies[0]) == "reliable", kept = std::string(policies[1]) == "transient-local";
    int depth = std::atoi(policies[2]);
    qos.reliability().kind = reliable ? RELIABLE_RELIABILITY_QOS : BEST_EFFORT_RELIABILITY_QOS;
    qos.reliability().max_blocking_time = {10, 0};
    qos.durability().kind = kept ? TRANSIENT_LOCAL_DURABILITY_QOS : VOLATILE_DURABILITY_QOS;
    qos.history().kind = depth == 0 ? KEEP_ALL_HISTORY_QOS : KEEP_LAST_HISTORY_QOS;
    if (depth > 0) qos.history().depth = qos.durability_service().history_depth = depth;
}

static DomainParticipant* join(unsigned domain) {
    auto udp = std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
    udp->interfaceWhiteList.push_back("127.0.0.1");
    udp->maxInitialPeersRange = 10;
    eprosima::fastrtps::rtps::Locator_t loopback;
    eprosima::fastrtps::rtps::IPLocator::setIPv4(loopback, "127.0.0.1");
    DomainParticipantQos qos;
    qos.transport().use_builtin_transports = false;
    qos.transport().user_transports.push_back(udp);
    qos.wire_protocol().builtin.metatrafficUnicastLocatorList.push_back(loopback);
    qos.wire_protocol().builtin.initialPeersList.push_back(loopback);
    return DomainParticipantFactory::get_instance()->create_participant(domain, qos);
}

static bool publish(DomainParticipant* participant, Topic* topic, DynamicData* text, char** given) {
    int writers = std::atoi(given[3]), count = std::atoi(given[4]);
    DataWriterQos qos;
    set(qos, given);
    auto* publisher = participant->create_publisher(PUBLISHER_QOS_DEFAULT);
    std::vector<DataWriter*> all;
    for (int number = 0; number < writers; ++number) all.push_back(publisher->create_datawriter(topic, qos));
    std::vector<bool> done(all.size());
    bool kept = qos.durability().kind == TRANSIENT_LOCAL_DURABILITY_QOS;
    // What is kept has been written by then: whoever comes now is late.
    if (!kept) std::puts("ready");
    bool first = true;
    do {
        for (int writer = 0; writer < writers; ++writer) {
            IncompatibleQosStatus wrong;
            all[writer]->get_offered_incompatible_qos_status(wrong);
            tell(wrong);
            PublicationMatchedStatus matched;
            all[writer]->get_publication_matched_status(matched);
            if (done[writer] || (!kept && matched.current_count == 0)) continue;
            for (int number = writer * count; number < (writer + 1) * count; ++number) {
                text->set_string_value("sample " + std::to_string(number), 0);
                if (!all[writer]->write(text)) return false;
            }
            done[writer] = true;
        }
        if (kept && first) std::puts("ready");
        first = false;
    } while (!ended());
    return true;
}

static bool subscribe(DomainParticipant* participant, Topic* topic, DynamicData* text, char** given) {
    DataReaderQos qos;
    set(qos, given);
    auto* reader = participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT)->create_datareader(topic, qos);
    std::puts("ready");
    do {
        IncompatibleQosStatus wrong;
        reader->get_requested_incompatible_qos_status(wrong);
        tell(wrong);
        SampleInfo info;
        while (reader->take_next_sample(text, &info) == ReturnCode_t::RETCODE_OK) {
            if (info.valid_data) std::puts(text->get_string_value(0).c_str());
        }
    } while (!ended());
    return true;
}

int main(int count, char** given) {
    if (count != 11) return 2;
    alarm(30);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    auto* participant = join(std::atoi(given[2]));
    if (!participant) return 1;
    TypeSupport type = struct_of_text(given[4], std::string(given[5]) == "described");
    type.register_type(participant);
    auto* topic = participant->create_topic(given[3], given[4], TOPIC_QOS_DEFAULT);
    auto* text = static_cast<DynamicData*>(type.create_data());
    bool publishes = std::string(given[1]) == "pub";
    bool worked = publishes ? publish(participant, topic, text, given + 6) : subscribe(participant, topic, text, given + 6);
    type.delete_data(text);
    participant->delete_contained_entities();
    DomainParticipantFactory::get_instance()->delete_participant(participant);
    return worked ? 0 : 1;
}
