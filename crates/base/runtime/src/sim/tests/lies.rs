//! Disks that report success for operations that they did not do.

use super::*;

#[test]
fn a_disk_that_lies_loses_what_it_said_was_durable_and_leads_writes_astray() {
    let sim = simulation(15);
    let machine = sim.add_machine(Locality::default());
    sim.run_on(machine, async move {
        let lies = &[Lie {
            begin: "log-",
            with: "",
            in_order: true,
        }];
        let (log, other) = (Path::new("/log-1"), Path::new("/other"));
        let mut lost = 0;
        for _ in 0..50 {
            let file = disk::open(log, CREATE).await.unwrap();
            file.write_and_sync(0, vec![Bytes::from("old")])
                .await
                .unwrap();
            disk::sync_dir(Path::new("/")).await.unwrap();
            assert!(crate::nobody_has_lied() || lost > 0);
            let lying = Sickness {
                lies,
                ..Sickness::default()
            };
            control().set_disk_sickness(machine, lying);
            disk::write_file_durably(other, Bytes::from("not lied about"))
                .await
                .unwrap();
            file.write_and_sync(0, vec![Bytes::from("n")])
                .await
                .unwrap();
            file.write_and_sync(1, vec![Bytes::from("ew")])
                .await
                .unwrap();
            control().set_disk_sickness(machine, Sickness::default());
            let world = current().unwrap();
            world.disk_of(machine).power_cut();
            let content = disk::read_file(log).await.unwrap();
            assert!(
                [&b"old"[..], b"nld", b"new"].contains(&&content[..]),
                "{content:?}"
            );
            lost += u32::from(content != "new");
            assert_eq!(disk::read_file(other).await.unwrap(), "not lied about");
        }
        assert!(lost > 10, "{lost} of 50");
        assert!(!crate::nobody_has_lied());

        let file = disk::open(log, CREATE).await.unwrap();
        let write = async |text: &'static str| file.write_at(0, Bytes::from(text)).await.unwrap();
        write("here").await;
        assert!(control().lead_next_write_astray(machine, log, None));
        write("gone too far").await;
        assert_eq!(
            &disk::read_file(log).await.unwrap()[..],
            b"here\0\0\0\0\0\0\0\0"
        );
        assert!(control().lead_next_write_astray(machine, log, Some(other)));
        write("THERE").await;
        assert_eq!(disk::read_file(other).await.unwrap(), "THEREied about");
        write("right").await;
        assert_eq!(&disk::read_file(log).await.unwrap()[..5], b"right");
    })
    .unwrap();
}
