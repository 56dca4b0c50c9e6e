use crate::rig::{Server, ms};
use leasehold::ErrorKind;

#[test]
fn smoke_rw() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let (ra, rb) = (a.rw_lock("w"), b.rw_lock("w"));
    let r1 = ra.read().unwrap();
    let r2 = rb.read().unwrap();
    assert!(rb.try_write_owned().unwrap_err().kind() == ErrorKind::Conflict);
    drop(r2);
    assert!(rb.try_write().unwrap().is_none());
    assert_eq!(ra.write().unwrap_err().kind(), ErrorKind::Conflict);
    let r3 = ra.read().unwrap();
    drop(r1);
    drop(r3);
    let w = rb.write().unwrap();
    let w2 = rb.write().unwrap();
    let r = rb.read().unwrap();
    assert!(ra.try_read().unwrap().is_none());
    println!("{:?} {:?}", w, server.hash("w"));
    drop(w);
    assert!(ra.try_read().unwrap().is_none());
    let d = w2.downgrade().unwrap();
    println!("{:?}", server.hash("w"));
    let r5 = ra.try_read().unwrap().unwrap();
    drop(r);
    drop(d);
    println!("{:?}", server.hash("w"));
    drop(r5);
    drop((ra, rb));
    drop((a, b));
    server.assert_clean();
}

#[test]
fn smoke_fair() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let (fa, fb) = (a.fair("w"), b.fair("w"));
    let g = fa.lock().unwrap();
    std::thread::scope(|s| {
        let t = s.spawn(|| drop(fb.lock().unwrap()));
        crate::rig::wait_until("queued", || fa.queue_len().unwrap() == 1);
        assert_eq!(fb.position().unwrap(), Some(0));
        assert_eq!(fa.position().unwrap(), None);
        assert!(fa.try_lock_owned_for(ms(50)).unwrap().is_none());
        assert_eq!(fa.queue_len().unwrap(), 1);
        drop(g);
        t.join().unwrap();
    });
    drop(fa.lock().unwrap());
    drop((fa, fb));
    drop((a, b));
    server.assert_clean();
}

#[test]
fn smoke_sem() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let (sa, sb) = (a.semaphore("w"), b.semaphore("w"));
    assert_eq!(sa.acquire().unwrap_err().kind(), ErrorKind::Conflict);
    assert!(sa.try_set_permits(3).unwrap());
    assert!(!sb.try_set_permits(4).unwrap());
    assert_eq!(sa.acquire_many(4).unwrap_err().kind(), ErrorKind::Conflict);
    let p = sa.acquire_many(2).unwrap();
    assert!(sb.try_acquire_many(2).unwrap().is_none());
    assert_eq!(sb.available_permits().unwrap(), 1);
    std::thread::scope(|s| {
        let t = s.spawn(|| sb.acquire_many(2).unwrap());
        std::thread::sleep(ms(100));
        p.unlock().unwrap();
        drop(t.join().unwrap());
    });
    let id = sa.acquire().unwrap().forget();
    sb.release(&id.to_string().parse().unwrap()).unwrap();
    assert_eq!(sb.release(&id).unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(sb.available_permits().unwrap(), 3);
    assert_eq!(sb.add_permits(-2).unwrap(), 1);
    assert!(sb.delete().unwrap());
    let (ca, cb) = (a.counting_semaphore("c"), b.counting_semaphore("c"));
    std::thread::scope(|s| {
        let t = s.spawn(|| cb.acquire_many(2).unwrap());
        std::thread::sleep(ms(100));
        assert_eq!(ca.add_permits(2).unwrap(), 2);
        t.join().unwrap().unlock().unwrap();
    });
    assert_eq!(ca.available_permits().unwrap(), 2);
    let (la, lb) = (a.latch("l"), b.latch("l"));
    assert!(la.try_wait().unwrap());
    la.set_count(2).unwrap();
    assert_eq!(lb.set_count(2).unwrap_err().kind(), ErrorKind::Conflict);
    std::thread::scope(|s| {
        let t = s.spawn(|| lb.wait().unwrap());
        assert_eq!(la.count_down().unwrap(), 1);
        assert!(!la.wait_for(ms(20)).unwrap());
        assert_eq!(la.count_down().unwrap(), 0);
        t.join().unwrap();
    });
    assert_eq!(
        a.lock("l").map(drop).and_then(|()| b.try_lock("c").map(drop)).unwrap_err().kind(),
        ErrorKind::WrongType
    );
    assert_eq!(a.fair("c").lock().unwrap_err().kind(), ErrorKind::WrongType);
}
