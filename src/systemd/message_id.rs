//! The MESSAGE_ID of every kind of line: one table, and the ids in it never change. What each line means is
//! told to operators by `dist/systemd/catalog/tenured.catalog`, which a test holds to this table.
//!
//! Source: journald's systemd.journal-fields(7), `MESSAGE_ID=`; sd-id128(3).

use std::fmt;

use crate::core::happening::Kind;
use crate::core::retry::Outcome;

/// A kind of line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Something has happened to a task.
    Event(Kind),
    /// Something is wrong with the daemon or its host.
    Degraded,
    /// It is right again.
    Well,
    /// Another configuration applies.
    Reloaded,
    /// The new configuration was refused; the old one applies.
    ConfigurationRefused,
    /// The host goes down.
    HostStops,
    /// The host stays up after all.
    HostStays,
    /// The daemon's loop does not get on.
    Stuck,
}

/// 128 bits that name a kind of line for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(u128);

impl fmt::Display for MessageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

/// Every kind of line that is written.
const TABLE: [(Line, u128); 36] = [
    (Line::Event(Kind::Claimed), 0x7d73_292a_5cb7_89f6_0acf_c5b3_2caf_70de),
    (Line::Event(Kind::Started), 0xb9a2_da93_2b17_b78e_1b8e_8a12_7ffc_f210),
    (Line::Event(Kind::WorkerRegistered), 0x83fb_f61f_5069_9c9b_d2e2_a357_735c_8477),
    (Line::Event(Kind::Held), 0x63b1_2720_03a8_d2b7_b7c2_6c8d_8b92_b732),
    (Line::Event(Kind::StopAsked), 0x06a4_eca5_edb9_2745_b0d9_22a2_fe62_ecc5),
    (Line::Event(Kind::Signalled), 0x54ae_8556_121b_7b21_d062_70b9_4b84_d8c1),
    (Line::Event(Kind::Unblocked), 0x7f31_3dc6_7ea5_c5c7_b01b_d77b_6d13_85b1),
    (Line::Event(Kind::GaveUp), 0x5c3b_bf90_bf1c_7917_08f7_7bad_5b1a_4597),
    (Line::Event(Kind::Retried), 0x64c7_9ae3_93f7_2326_7ce2_1c0d_a910_c66a),
    (Line::Event(Kind::Survivor), 0x6493_4cc6_3d5d_6ef9_afa5_ae84_8492_b53e),
    (Line::Event(Kind::Forced), 0x681c_6921_5ee1_2a32_40b8_7484_348d_edf5),
    (Line::Event(Kind::Blocked), 0xb6d7_0a78_cfa3_9773_880b_cd16_a66d_5ff7),
    (Line::Event(Kind::Cancelled), 0x31c7_ea94_d580_789a_02b4_77fa_e11d_1ba2),
    (Line::Event(Kind::Ended(Outcome::Completed)), 0xb65d_df2a_0979_dfe3_ea7f_47d0_b5d0_35f6),
    (Line::Event(Kind::Ended(Outcome::Failed)), 0x170d_b768_2c66_86f3_8774_437b_4c73_f963),
    (Line::Event(Kind::Ended(Outcome::Crashed)), 0x04f9_3283_80c8_9058_0687_aa08_e012_e958),
    (Line::Event(Kind::Ended(Outcome::Oom)), 0x4613_e118_3f5c_94ce_e933_4ee8_2e0f_7bac),
    (Line::Event(Kind::Ended(Outcome::TimedOut)), 0x333d_9e96_0484_eca2_0561_bcdd_c9f0_711b),
    (Line::Event(Kind::Ended(Outcome::Stalled)), 0x2dad_8c1a_ca44_ecee_c3a0_31b5_85ab_9146),
    (Line::Event(Kind::Ended(Outcome::Reclaimed)), 0x52f5_6a22_d93b_d7a9_dc9e_18de_5a21_33fc),
    (Line::Event(Kind::Ended(Outcome::Tempfail)), 0xb081_6932_969a_8baa_fd86_26a1_05c9_604e),
    (Line::Event(Kind::Ended(Outcome::Misconfigured)), 0x0986_91b2_b162_afc0_2c71_3ff0_15e9_55ae),
    (Line::Event(Kind::Ended(Outcome::Lost)), 0xde4d_c629_276a_61cd_68bc_3007_ddcf_f4b2),
    (Line::Event(Kind::Ended(Outcome::NotStarted)), 0xb5f7_bfc3_8fe1_fcfd_141c_2776_c6c7_81cc),
    (Line::Event(Kind::Ended(Outcome::Released)), 0x363a_e203_0282_0606_530d_e628_e3bb_505b),
    (Line::Event(Kind::Ended(Outcome::Reconciled)), 0x0c32_16c3_382e_cdfe_9b15_0ea6_2024_7aca),
    (Line::Event(Kind::Ended(Outcome::Operator)), 0x4ed4_8521_eb05_0166_20a2_fa9c_96fc_fda8),
    (Line::Event(Kind::Ended(Outcome::Cancelled)), 0x2d99_20d7_6454_df08_ecf3_08a6_2ea6_5d6c),
    (Line::Event(Kind::Ended(Outcome::Blocked)), 0x9430_4c7c_2315_e3e8_b95c_915a_ec70_9d86),
    (Line::Degraded, 0x9f34_7d40_0f7b_4003_b738_4320_8402_9a35),
    (Line::Well, 0xdf28_8b2e_1a08_e2ac_4f2d_8f91_2296_1374),
    (Line::Reloaded, 0x26ef_fa0f_d870_501a_9693_7cbe_bdac_45fd),
    (Line::ConfigurationRefused, 0xaf75_f519_29c5_ba49_b44f_8585_d986_545e),
    (Line::HostStops, 0xcbd3_d413_6d0e_f15a_b2cd_a37c_7f63_486e),
    (Line::HostStays, 0x6aa8_f07e_b439_570f_db6c_197b_c845_4534),
    (Line::Stuck, 0x8bf1_e0e1_83ba_11f9_db89_a9b4_ba9b_b226),
];

/// The id of a line; nothing for kinds that are not written.
pub fn of(line: Line) -> Option<MessageId> {
    TABLE.iter().find(|(there, _)| *there == line).map(|(_, id)| MessageId(*id))
}

/// Every id, with what it stands for.
pub fn all() -> impl Iterator<Item = (Line, MessageId)> {
    TABLE.iter().map(|(line, id)| (*line, MessageId(*id)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::core::happening::Weight;

    #[test]
    fn every_kind_that_is_written_has_an_id_of_its_own() {
        let ids: HashSet<MessageId> = all().map(|(_, id)| id).collect();
        assert_eq!(ids.len(), TABLE.len());
        for kind in Kind::all() {
            let is_written = kind.weight() != Weight::Silent;
            assert_eq!(of(Line::Event(kind)).is_some(), is_written, "{kind:?}");
        }
    }

    /// Entries by id: the subject, and the explanation's paragraphs.
    fn catalog() -> Vec<(String, Vec<String>, String)> {
        let text = include_str!("../../dist/systemd/catalog/tenured.catalog");
        let (_, entries) = text.split_once("\n-- ").unwrap();
        let entry = |entry: &str| {
            let (id, rest) = entry.split_once('\n').unwrap();
            let (head, body) = rest.split_once("\n\n").unwrap();
            (id.to_owned(), head.lines().map(str::to_owned).collect(), body.trim().to_owned())
        };
        entries.split("\n-- ").map(entry).collect()
    }

    #[test]
    fn the_catalog_explains_every_line_and_nothing_else() {
        let mut explained: Vec<String> = catalog().into_iter().map(|(id, ..)| id).collect();
        let mut written: Vec<String> = all().map(|(_, id)| id.to_string()).collect();
        explained.sort();
        written.sort();
        assert_eq!(explained, written);
    }

    #[test]
    fn an_entry_says_what_happened_what_it_means_and_what_to_do() {
        const FIELDS: [&str; 4] = ["TENURED_TASK", "TENURED_RUN", "TENURED_QUEUE", "TENURED_CAUSE"];
        for (id, head, body) in catalog() {
            assert!(
                head[0].strip_prefix("Subject: ").is_some_and(|subject| !subject.is_empty()),
                "{id} {head:?}"
            );
            assert_eq!(head[1], "Defined-By: tenured", "{id}");
            assert!(body.split("\n\n").count() >= 2, "{id} does not say what to do: {body}");
            let text = format!("{}{body}", head[0]);
            for (at, field) in text.split('@').enumerate().filter(|(at, _)| at % 2 == 1) {
                assert!(FIELDS.contains(&field), "{id}: @{field}@ at {at}");
            }
        }
    }
}
